// Package diagnosis says of a model that could not be loaded, can be loaded and not be asked, or
// has a configuration that cannot be meant, where the fault lies and what its author can do. Triton's texts say neither; they stay as they
// are for clients, and what this package says follows them in the log and behind a failed start.
//
//	error of a load ── Of ── Fault ── "greeter: models/greeter/config.pbtxt:3:9: unknown field: inputs; did you mean input?"
//	text of a fault, configuration ── Line ── the line that the text speaks of
//	valid configuration ── Doubts, LabelDoubts ── what its author cannot mean, for nereid check and the log of a load
//	model.py without a config ── FirstConfig ── a config.pbtxt to begin with
//
// It owns nothing, reads no file and has no state; any goroutine may call it. Texts are those
// of the operator's own files: they are for the log, not for clients.
package diagnosis
