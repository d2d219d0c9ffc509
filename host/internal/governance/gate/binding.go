package gate

import "strings"

// holds says whether (argument op constraint) is true; ok is false when the two
// cannot be compared, which is never taken for true or false (governance G2,
// G6). Numbers compare as exact decimals, strings byte for byte; nothing is
// converted.
func holds(arg value, op string, constraint value) (is, ok bool) {
	switch op {
	case "eq", "ne":
		same, ok := same(arg, constraint)
		return same == (op == "eq"), ok
	case "gt", "gte", "lt", "lte":
		c, ok := compareNumbers(arg, constraint)
		return c > 0 && op[0] == 'g' || c < 0 && op[0] == 'l' || c == 0 && strings.HasSuffix(op, "e"), ok
	case "in":
		return among(arg, constraint)
	case "contains":
		if arg.kind == text && constraint.kind == text {
			return strings.Contains(decodeString(arg.raw), decodeString(constraint.raw)), true
		}
		return among(constraint, arg)
	}
	return false, false
}

func compareNumbers(a, b value) (int, bool) {
	if a.kind != number || b.kind != number {
		return 0, false
	}
	x, okX := parseDecimal(string(a.raw))
	y, okY := parseDecimal(string(b.raw))
	if !okX || !okY {
		return 0, false
	}
	return x.compare(y), true
}

// same compares two numbers, two strings or two bools.
func same(a, b value) (equal, ok bool) {
	if a.kind != b.kind {
		return false, false
	}
	switch a.kind {
	case number:
		c, ok := compareNumbers(a, b)
		return c == 0, ok
	case text:
		return decodeString(a.raw) == decodeString(b.raw), true
	case boolean:
		return string(a.raw) == string(b.raw), true
	}
	return false, false
}

// among says whether an array holds the value. Not holding it is an answer only
// if all of its members could be compared with it.
func among(v, list value) (found, ok bool) {
	if list.kind != array || v.kind == array || v.kind == object {
		return false, false
	}
	ok = true
	for _, m := range list.members {
		equal, comparable := same(v, m)
		if equal && comparable {
			return true, true
		}
		ok = ok && comparable
	}
	return false, ok
}
