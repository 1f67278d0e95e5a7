// Package diagnosis explains, for a model that fails to load, rejects every request or is almost
// certainly misconfigured, where the fault is and what its author can do. Triton's texts say
// neither; clients still get them, and the diagnosis follows them in the log and after a failed
// start.
//
//	error of a load ── Of ── Fault ── "greeter: models/greeter/config.pbtxt:3:9: unknown field: inputs; did you mean input?"
//	text of a fault, configuration ── Line ── the line that the text refers to
//	valid configuration ── Doubts, LabelDoubts ── probable mistakes, for nereid check and the log of a load
//	model.py without a config ── FirstConfig ── a config.pbtxt to begin with
//
// The package reads no file and has no state; any goroutine may call it. Its texts show the
// operator's own files: they are for the log, not for clients.
package diagnosis
