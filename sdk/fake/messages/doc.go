// Package messages is a stand-in of the Messages API, so that a real agent CLI
// can be run, watched and tested without an account and without a network: a
// handler, and Serve for a loopback port or a unix socket. It streams and
// answers plainly, states usage, counts tokens, and refuses what the API
// refuses, in the API's shape. It imports the standard library only.
//
// The one idea: the prompt is the script, and the conversation says how far it
// has come. Nothing is remembered between requests (but how often a fault was
// given), so that a client may be killed, resumed and forked as it likes.
//
// # The script
//
// Each line of a user's text that begins with one of these words is a step;
// every other line is ignored, and so is what stands in <system-reminder>. A
// turn of the model goes as far as the first tool call, or to the end of the
// script.
//
//	say TEXT              text; in TEXT of any step, \n is a new line and \\ a backslash
//	report                text: what the last tool calls gave back
//	think TEXT            a thinking block
//	bash COMMAND          the tool Bash (the command is taken as it is written)
//	read PATH             the tool Read
//	write PATH TEXT       the tool Write
//	edit PATH|OLD|NEW     the tool Edit
//	ask QUESTION|OPT|OPT  the tool AskUserQuestion
//	agent PROMPT          a sub-agent; its prompt is a script too
//	mcp SERVER TOOL JSON  a tool of an MCP server
//	tool NAME JSON        any tool
//	                      in JSON of both, a string "{{NAME}}" becomes the member NAME of
//	                      the newest result of a tool that has one
//	parallel … end        the tool calls between the two are one turn
//	stop REASON [TEXT]    ends the turn with another stop reason, say max_tokens
//
// What goes wrong, for the turn that follows. N is how often; left out, it is
// every time:
//
//	overload [N]          529, overloaded
//	error STATUS [N]      another error of the API
//	break [N]             a streamed answer ends in the middle; plain ones do not
//	fail [N]              a streamed answer ends with an error event
//	silent MS             a streamed answer pauses in the middle
//	sleep MS              nothing comes for so long
//
// And for all turns after it:
//
//	slow MS               a pause before each event of a stream
//	usage IN OUT [READ [WRITE]]
//	                      the tokens of each answer, READ and WRITE those of the cache;
//	                      without it they are estimated at four bytes a token
//
// A prompt without a step is answered with one line of text.
package messages
