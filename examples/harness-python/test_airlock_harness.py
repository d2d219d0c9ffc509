"""Tests of airlock_harness.py against a real host.

AIRLOCK_ADDR and AIRLOCK_TOKEN say where it is and who its operator is; its rules
are those of host/e2e/governance_test.go. Run: python3 -m unittest -v
"""

import asyncio
import json
import os
import threading
import time
import unittest
import urllib.error
import urllib.request

from airlock_harness import AirlockError, Blocked, CancelRequested, Client, Refused, Suspended, Unreachable, attach


def operator(method, path, body=None):
    request = urllib.request.Request(os.environ["AIRLOCK_ADDR"] + path, method=method)
    request.add_header("Authorization", "Bearer " + os.environ["AIRLOCK_TOKEN"])
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


class Harness(unittest.TestCase):
    def setUp(self):
        task = operator("POST", "/tasks", {"objective": "python harness: " + self.id()})
        self.task = "/tasks/" + task["task_id"]
        self.url, self.token = task["url"], task["token"]
        self.client = Client(self.url, self.token, hold=0.5)
        self.ran = []

    def status(self):
        return operator("GET", self.task + "/status")

    def answer(self, action):
        """Answers the next approval, from another thread."""

        def work():
            end = time.monotonic() + 60
            while time.monotonic() < end:
                pending = self.status()["pending_approvals"]
                if pending:
                    operator("POST", self.task + "/approval", {"decision_id": pending[0]["decision_id"], "action": action})
                    return
                time.sleep(0.02)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)

    def counters(self, **want):
        """Waits until the host counts what was done."""
        end = time.monotonic() + 30
        while True:
            counted = self.status()["counters"]
            got = {name: counted[name] for name in want}
            if got == want or time.monotonic() > end:
                self.assertEqual(got, want)
                return
            time.sleep(0.02)

    def test_plain_functions(self):
        def read_order(order_id: str, limit=3):
            self.ran.append((order_id, limit))
            return order_id

        def fail():
            raise ValueError("no such order")

        def delete_order(order_id):
            self.ran.append("deleted")

        read_order, fail, delete_order = attach(self.client, [read_order, fail, delete_order])
        self.assertEqual(read_order.__name__, "read_order")
        self.assertEqual(read_order("order-123"), "order-123")
        with self.assertRaises(ValueError):
            fail()
        with self.assertRaises(Blocked) as caught:
            delete_order("order-123")
        self.assertEqual(caught.exception.decision["decision"]["status"], "BLOCK")
        self.assertEqual(self.ran, [("order-123", 3)])
        self.counters(proposed=3, executed=2, completed=1, failed=1, blocked=1)

    def test_approvals(self):
        def refund(amount):
            self.ran.append(amount)
            return "paid"

        [refund] = attach(self.client, [refund])
        self.answer("approve_once")
        self.assertEqual(refund(850), "paid")
        self.answer("reject")
        with self.assertRaises(Blocked):
            refund(900)
        self.answer("ask_agent_to_replan")
        with self.assertRaises(Suspended):
            refund(901)
        self.assertEqual(self.ran, [850])
        self.counters(executed=1, completed=1)

    def test_rewritten_arguments(self):
        def deploy(ratio, big, dry_run=False):
            self.ran.append((ratio, big, dry_run))

        def deploy_all(*hosts, **options):
            self.ran.append((hosts, options))

        def deploy_blind(ratio):
            self.ran.append("blind")

        deploy, deploy_all, deploy_blind = attach(self.client, [deploy, deploy_all, deploy_blind])
        deploy(1.10, 123456789012345678901234567890)
        deploy_all("a", "b", speed=1e-7)
        with self.assertRaises(AirlockError):
            deploy_blind(1)
        self.assertEqual(self.ran, [(1.1, 123456789012345678901234567890, True), (("a", "b"), {"speed": 1e-7, "dry_run": True})])
        self.counters(executed=2, completed=2)

    def test_what_is_no_json_never_runs(self):
        def read(value):
            self.ran.append(value)

        [read] = attach(self.client, [read])
        for value in (object(), float("nan"), {1, 2}):
            with self.assertRaises((TypeError, ValueError)):
                read(value)
        self.assertEqual(self.ran, [])
        self.counters(proposed=0)

    def test_coroutines_are_cancelled_on_their_own_loop(self):
        cleaned = []

        async def wait_for_ever():
            try:
                await asyncio.sleep(3600)
            finally:
                cleaned.append(asyncio.get_running_loop())

        async def stubborn():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "finished all the same"

        async def quick(n):
            await asyncio.sleep(0)
            return n

        async def story():
            attached = attach(self.client, [wait_for_ever, stubborn, quick])
            self.assertEqual(await attached[2](7), 7)
            first, second = asyncio.create_task(attached[0]()), asyncio.create_task(attached[1]())
            while len(await asyncio.to_thread(lambda: self.status()["running"])) < 2:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(operator, "POST", self.task + "/control?wait=0", {"action": "stop"})
            with self.assertRaises(CancelRequested):
                await first
            self.assertEqual(await second, "finished all the same")
            self.assertEqual(cleaned, [asyncio.get_running_loop()])
            with self.assertRaises(Refused) as caught:
                await attached[2](8)
            self.assertEqual(caught.exception.code, "stopped")

        asyncio.run(story())
        self.counters(executed=3, completed=2, failed=1)

    def test_a_caller_that_gives_up(self):
        async def wait_for_ever():
            await asyncio.sleep(3600)

        async def story():
            task = asyncio.create_task(attach(self.client, [wait_for_ever])[0]())
            while not await asyncio.to_thread(lambda: self.status()["running"]):
                await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(story())
        self.counters(executed=1, failed=1)

    def test_a_caller_that_gives_up_before_the_admission(self):
        async def wait_for_ever():
            self.ran.append("ran")

        late = Client(self.url, self.token, hold=0.5)
        dispatched, go_on = threading.Event(), threading.Event()
        real = late.dispatch

        def slow(*args):
            invocation = real(*args)
            dispatched.set()
            go_on.wait(60)
            return invocation

        late.dispatch = slow

        async def story():
            task = asyncio.create_task(attach(late, [wait_for_ever])[0]())
            await asyncio.to_thread(dispatched.wait, 60)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            go_on.set()

        asyncio.run(story())
        self.counters(executed=1, failed=1)
        self.assertEqual(self.ran, [])

    def test_without_a_host_nothing_runs(self):
        def read():
            self.ran.append("ran")

        with self.assertRaises(Unreachable):
            attach(Client("http://127.0.0.1:1/tasks/x", "t", patience=0.01), [read])[0]()
        with self.assertRaises(Refused) as caught:
            attach(Client(self.url, "0a" * 32), [read])[0]()
        self.assertEqual(caught.exception.status, 404)
        for bad in ("", "ftp://x/tasks/y", "http://127.0.0.1:8122"):
            with self.assertRaises(ValueError):
                Client(bad, "t")
        self.assertEqual(self.ran, [])

    def test_access_is_recorded(self):
        self.client.record_access("session", "issuer", "s1")
        self.client.record_access("delegation", "issuer", "d1", parent="s1")
        self.assertEqual(len(self.status()["revocation"]["access"]), 2)


if __name__ == "__main__":
    unittest.main()
