// Package condition holds the conditions of rules: HCL expressions over a tool
// call, compiled once when a configuration is loaded and evaluated at every
// decision. It imports hcl and cty and nothing of ours.
//
// The one idea: nothing is converted and nothing is guessed. The tree that HCL
// parsed is rebuilt at load so that comparisons, arithmetic, logic, indices and
// calls take exactly the types they are for; anything else is an error, and an
// error is the business of the failure policy (rulings 20 and 40).
//
// What is exact: two numbers compare as the decimals that were written, as long
// as neither has more than MaxDigits digits. Longer ones are opaque: using one
// is an error. Arithmetic rounds to 512 bits. Strings are seen in Unicode
// normal form C, because cty holds them so.
package condition
