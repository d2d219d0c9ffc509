"""Put the tool calls of a Python agent through an Airlock host.

    client = Client(task_url, task_token)          # what POST /tasks answered
    [read_order, refund] = attach(client, [read_order, refund])

Each function then is proposed to the host before it runs, waits for whoever
must decide, and runs only between a dispatch that the host has admitted and a
completion that says how it ended. Plain callables run in the calling thread.
Coroutine functions run as tasks of their own, on the loop that called them, and
are cancelled there when the host asks for it.

Only the standard library is used. Without a host there is no call: every doubt
is an exception before the function runs.
"""

import asyncio
import functools
import http.client
import inspect
import json
import threading
import time
import urllib.parse
import uuid

__all__ = ["AirlockError", "Blocked", "CancelRequested", "Client", "Refused", "Suspended", "Unreachable", "attach"]


class AirlockError(Exception):
    """The host did not let a call run, or asked for its end."""


class Unreachable(AirlockError):
    """The host does not answer: it is not known what it has done."""


class Refused(AirlockError):
    """The host says no. code is a word such as stopped, paused or stale_epoch."""

    def __init__(self, status, code, detail):
        super().__init__("the host refuses (%s): %s" % (code or status, detail))
        self.status, self.code, self.detail = status, code, detail


class Blocked(AirlockError):
    """The call must not run."""

    def __init__(self, decision):
        super().__init__("the call is blocked: " + decision["decision"]["reason"])
        self.decision = decision


class Suspended(AirlockError):
    """The call does not run now: justify it (CHALLENGE) or plan anew (REPLAN)."""

    def __init__(self, decision):
        verdict = decision["decision"]
        super().__init__("the call is suspended (%s): %s" % (verdict["status"], verdict["reason"]))
        self.decision = decision


class CancelRequested(AirlockError):
    """The host asked for the end of a running coroutine, and it ended."""


class Client:
    """Speaks for one task. hold is how many seconds one request waits for a
    human (the wait goes on with another); patience is how long an unreachable
    host is tried again. A dispatch is never tried twice."""

    def __init__(self, url, token, hold=300.0, patience=30.0):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or "/tasks/" not in parts.path:
            raise ValueError("%r is not a task's URL such as http://127.0.0.1:8122/tasks/ID" % url)
        if not token:
            raise ValueError("the task's token is empty")
        self._parts, self._path = parts, parts.path.rstrip("/")
        self._token, self._hold, self._patience = token, min(hold, 3600.0), patience

    def propose(self, tool, args, proposal_id=None, **more):
        """Asks for a call and waits until somebody has decided. args is a dict (or
        the text of one that is sent as it is); more may be metadata, parent_decision_id and parent_plan_step."""
        body = dict(more, proposal_id=proposal_id or str(uuid.uuid4()), tool_name=tool, tool_args=args, wait_s=self._hold)
        while True:
            decision = self._insist("POST", "/proposals", body)
            if decision["decision"]["status"] not in ("PAUSE", "ESCALATE"):
                return decision
            time.sleep(0.05)  # held as long as it may be, or the host is about to stop

    def dispatch(self, decision_id, tool, args):
        """Takes the reservation; only when it returns may the call run."""
        return self._try("POST", "/dispatches", {"decision_id": decision_id, "tool_name": tool, "tool_args": args})["invocation_id"]

    def complete(self, invocation_id, outcome, result=None, error="", duration=0.0):
        """Says how a call ended: succeeded, failed or outcome_unknown."""
        body = {"outcome": outcome, "error": error, "duration_ms": int(duration * 1000)}
        try:
            body["result"] = _Raw(_dump(result))
        except (TypeError, ValueError):
            pass  # a result that is no JSON has no digest
        path = "/dispatches/%s/completion" % urllib.parse.quote(invocation_id, safe="")
        tries = []
        try:
            self._insist("POST", path, body, tries)
        except Refused as refused:
            if refused.code != "settled" or len(tries) < 2:  # else the answer to an earlier try was lost
                raise

    def invocation(self, invocation_id, wait=0.0):
        """How far a call is: {"state", "cancel_requested_at"}. With a wait it
        answers when the call should end or has ended, or the time is over."""
        return self._insist("GET", "/dispatches/%s?wait_s=%g" % (urllib.parse.quote(invocation_id, safe=""), wait))

    def record_access(self, kind, issuer, ref, parent=None):
        """Tells the host of access (session or delegation) that a stop must cut."""
        self._insist("POST", "/access", {"kind": kind, "issuer": issuer, "ref": ref, "parent": parent})

    def _try(self, method, path, body=None):
        make = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = make(self._parts.netloc, timeout=self._hold + 60)
        headers = {"Authorization": "Bearer " + self._token}
        data = None
        if body is not None:
            data, headers["Content-Type"] = _body(body).encode(), "application/json"
        try:
            connection.request(method, self._path + path, data, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable("the host does not answer: %s" % error) from error
        finally:
            connection.close()
        if response.status < 300:
            answer = json.loads(text) if text else None
            if answer and answer.get("updated_args") is not None:
                answer["updated_args_text"] = _raw_member(text, "updated_args")
            return answer
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {}
        raise Refused(response.status, problem.get("code", ""), problem.get("error", response.reason))

    def _insist(self, method, path, body=None, tries=None):
        end, pause = time.monotonic() + self._patience, 0.05
        while True:
            if tries is not None:
                tries.append(path)
            try:
                return self._try(method, path, body)
            except (Unreachable, Refused) as error:
                if isinstance(error, Refused) and error.status < 500 or time.monotonic() > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


class _Raw(str):
    """JSON text that is sent as it is: a number keeps its spelling."""


def _body(members):
    return "{%s}" % ",".join(_dump(name) + ":" + (value if isinstance(value, _Raw) else _dump(value)) for name, value in members.items())


def _raw_member(text, name):
    """The text of a member's value; a name that stands in a string has its
    quotes escaped, so it is not mistaken for one."""
    key = _dump(name) + ":"
    start = text.index(key) + len(key)
    return _Raw(text[start : json.JSONDecoder().raw_decode(text, start)[1]])


def _dump(value):
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def attach(client, functions):
    """Gives the functions back as governed calls, in their order. The tool's
    name is the function's; the arguments are those of its signature."""
    return [_attach(client, f) for f in functions]


def _attach(client, function):
    call = _Call(client, function)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def governed(*args, **kwargs):
            return await call.run_task(args, kwargs)

    else:

        @functools.wraps(function)
        def governed(*args, **kwargs):
            return call.run(args, kwargs)

    return governed


class _Call:
    def __init__(self, client, function):
        self.client, self.function, self.tool = client, function, function.__name__
        self.signature = inspect.signature(function)

    def admit(self, args, kwargs, given_up=None):
        """Gives the invocation and the arguments to run with, or raises."""
        # What cannot be journalled fails here, before anything runs.
        text = _Raw(_dump(self.named(args, kwargs)))
        decision = self.client.propose(self.tool, text)
        if decision.get("updated_args") is not None:
            text = decision["updated_args_text"]
            args, kwargs = self.positional(decision["updated_args"])
        if given_up is not None and given_up.is_set():
            raise AirlockError("nobody waits for %s any more" % self.tool)
        # Whether the verdict holds the call is the host's to say: it admits a
        # blocked one in mode observe.
        try:
            return self.client.dispatch(decision["decision_id"], self.tool, text), args, kwargs
        except Refused as refused:
            status = decision["decision"]["status"]
            if refused.code != "not_allowed" or status in ("ALLOW", "WARN"):
                raise
            raise (Blocked if status == "BLOCK" else Suspended)(decision) from refused

    def named(self, args, kwargs):
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = value
        return named

    def positional(self, named):
        """The arguments of a call out of what a rule made of them."""
        rest, args, kwargs, spread = dict(named), [], {}, False
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                spread = True
            elif name not in rest:
                continue
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(rest.pop(name))
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[name] = rest.pop(name)
            else:
                args.append(rest.pop(name))
        if rest and not spread:
            raise AirlockError("a rule gives %s the argument %s, which it does not take" % (self.tool, ", ".join(sorted(rest))))
        kwargs.update(rest)
        return args, kwargs

    def run(self, args, kwargs):
        invocation, args, kwargs = self.admit(args, kwargs)
        began = time.monotonic()
        try:
            result = self.function(*args, **kwargs)
        except BaseException as error:
            self.client.complete(invocation, "failed", error=_said(error), duration=time.monotonic() - began)
            raise
        self.client.complete(invocation, "succeeded", result, duration=time.monotonic() - began)
        return result

    async def run_task(self, args, kwargs):
        given_up = threading.Event()
        try:
            invocation, args, kwargs = await _in_thread(self.admit, args, kwargs, given_up, unwanted=self.not_begun)
        except asyncio.CancelledError:
            given_up.set()
            raise
        loop, began = asyncio.get_running_loop(), time.monotonic()
        task = loop.create_task(self.function(*args, **kwargs))
        asked = threading.Event()
        threading.Thread(target=self.watch, args=(invocation, loop, task, asked), daemon=True).start()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:  # whoever called gave up
            task.cancel()
            await asyncio.wait([task])
            await asyncio.shield(self.settle(invocation, task, began))
            raise
        await asyncio.shield(self.settle(invocation, task, began))
        if task.cancelled() and asked.is_set():
            raise CancelRequested("%s was cancelled since the host asked for it" % self.tool)
        return task.result()

    def not_begun(self, admitted):
        """Closes a call whose caller gave up before the admission was there."""
        self.client.complete(admitted[0], "failed", error="cancelled before it began")

    async def settle(self, invocation, task, began):
        """Records what happened, whatever was asked for."""
        outcome, result, error = "succeeded", None, ""
        if task.cancelled():
            outcome, error = "failed", "cancelled"
        elif task.exception() is not None:
            outcome, error = "failed", _said(task.exception())
        else:
            result = task.result()
        await _in_thread(self.client.complete, invocation, outcome, result, error, time.monotonic() - began)

    def watch(self, invocation, loop, task, asked):
        """Cancels the task on its own loop once the host asks for it. While the
        host is away the call goes on: it was admitted."""
        while not task.done():
            try:
                state = self.client.invocation(invocation, wait=60.0)
            except Unreachable:
                continue
            except AirlockError:
                return
            if state["cancel_requested_at"] is not None:
                asked.set()
                try:
                    loop.call_soon_threadsafe(task.cancel)
                except RuntimeError:
                    pass  # the loop is closed: nothing runs on it
                return
            if state["state"] != "started":
                return
            time.sleep(0.05)


def _said(error):
    return "%s: %s" % (type(error).__name__, error)


async def _in_thread(function, *args, unwanted=None):
    """Runs a request that may be held for long in a thread of its own: those of
    the loop's executor are few, and a completion must never wait for one. A
    result that comes when nobody waits any more goes to unwanted."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def leftover(error, value):
        if error is None and unwanted is not None:
            threading.Thread(target=unwanted, args=(value,)).start()

    def settle(error, value):
        if future.done():
            leftover(error, value)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def work():
        error, value = None, None
        try:
            value = function(*args)
        except BaseException as raised:  # goes to whoever waits
            error = raised
        try:
            loop.call_soon_threadsafe(settle, error, value)
        except RuntimeError:  # the loop is closed: nobody waits
            leftover(error, value)

    threading.Thread(target=work, daemon=True).start()
    return await future
