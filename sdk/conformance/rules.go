package conformance

import "strings"

// The rules. A backend in broken_test.go breaks each of them; tests of package cli/backends break
// those of processes.
const (
	ruleHooks      = "hooks"
	rulePanics     = "panics"
	ruleProcess    = "process"
	ruleAnswers    = "one-answer"
	ruleReleases   = "one-release"
	ruleTaken      = "nothing-taken"
	ruleOutputs    = "outputs"
	ruleOwn        = "own-answers"
	ruleInputs     = "inputs-unchanged"
	ruleSent       = "sent-unchanged"
	ruleEmpty      = "empty-tensors"
	ruleCancelled  = "cancelled"
	ruleConcurrent = "instances"
	ruleUnload     = "unload"
	ruleStatistics = "statistics"
	ruleGoroutines = "goroutines"
)

// rules describes each rule, in the order of reports.
var rules = []struct{ name, says string }{
	{ruleHooks, "New, NewModel and NewInstance succeed with this model, and again after it was unloaded"},
	{rulePanics, "no hook panics, or ends its goroutine"},
	{ruleProcess, "a plugin's process lives as long as its instance"},
	{ruleAnswers, "each request gets exactly one final response, and nothing after it"},
	{ruleReleases, "each request is released exactly once"},
	{ruleTaken, "Execute that returns an error has answered and released nothing"},
	{ruleOutputs, "outputs have the types and shapes of the config, and the rows of their request"},
	{ruleOwn, "each request of a batch gets the same responses as alone"},
	{ruleInputs, "the bytes of inputs are not written to"},
	{ruleSent, "the bytes of outputs are not written to after Send"},
	{ruleEmpty, "inputs without elements are answered"},
	{ruleCancelled, "requests whose client has gone are answered and released like others"},
	{ruleConcurrent, "instances execute at the same time"},
	{ruleUnload, "Close returns, and leaves no request of the instance unanswered"},
	{ruleStatistics, "times are reported in order, and before the release of their request"},
	{ruleGoroutines, "nothing goes on after the backend was closed"},
}

// faults maps parts of package engine's sentences about violations to the broken rules.
var faults = []struct{ part, rule string }{
	{"panicked", rulePanics},
	{"ended its goroutine", rulePanics},
	{"Execute has returned an error, though", ruleTaken},
	{"was released", ruleReleases},
	{"statistics", ruleStatistics},
	{"times of an execution", ruleStatistics},
	{"does not return", ruleUnload},
	{"when its instance was closed", ruleUnload},
	{"returned no", ruleHooks},
	{"had not been released", ruleReleases},
}

// ruleOf returns the rule for a sentence of the engine. Sentences that are not in faults are about
// responses.
func ruleOf(sentence string) string {
	for _, f := range faults {
		if strings.Contains(sentence, f.part) {
			return f.rule
		}
	}
	return ruleAnswers
}
