package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// summary prints the figures.
func (k *soak) summary(before, peak, after usage, counters, earlier map[string]float64) {
	all := k.results.sum()
	total := 0
	for _, n := range all {
		total += n
	}
	fmt.Println()
	k.results.print()
	fmt.Println()
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		fmt.Printf("%s %.0f, before %.0f\n", name, counters[name], earlier[name])
	}
	fmt.Printf("\n%d good requests in %.0f s: %d right (%.2f %%), %d refused, %d lost with %.0f processes, %d for a model that was not loaded, %d wrong\n",
		total, k.took.Seconds(), all[right], 100*float64(all[right])/float64(max(total, 1)), all[refused], all[lost], counters["nereid_stub_losses_total"], all[absent], all[wrong])
	fmt.Printf("at rest before: %s; RSS with good clients alone: %s\n", before, mib(before.serving))
	fmt.Printf("the most:       %s\n", peak)
	fmt.Printf("at rest after:  %s\n", after)
	if g := k.server.group; g != nil {
		fmt.Printf("control group of %s: %d processes killed because memory ran out\n", mib(k.memory), g.kills())
	}
}

// insideOne is how many good requests may have been inside one lost process: an executing batch of
// eight, and one queued in the process.
const insideOne = 16

// judge adds a fault for each wrong count.
func (k *soak) judge(before, after usage, counters, earlier map[string]float64, left []string) {
	all := k.results.sum()
	if all[wrong] > 0 {
		k.results.fault("%d good requests had a wrong response, or none", all[wrong])
	}
	if all[right] == 0 {
		k.results.fault("no good request was answered rightly")
	}
	if !after.within(before) {
		k.results.fault("the server has not given back its memory: %s; before: %s; half as much of RSS and of the control group, %s of shared memory and %d descriptors more are allowed",
			after, before, mib(sharedBound), descriptorsBound)
	}
	losses := int(counters["nereid_stub_losses_total"] - earlier["nereid_stub_losses_total"])
	if all[lost] > losses*insideOne {
		k.results.fault("%d good requests were lost with %d processes", all[lost], losses)
	}
	for _, name := range []string{"nereid_internal_errors_total", "nereid_stub_protocol_errors_total"} {
		if n := counters[name]; n > 0 {
			k.results.fault("%s is %.0f", name, n)
		}
	}
	const memory = "nereid_memory_bytes"
	if counters[memory] > earlier[memory]+sharedBound {
		k.results.fault("%s is %.0f, was %.0f, and nothing is asked any more", memory, counters[memory], earlier[memory])
	}
	if n := k.server.group.kills(); n > 0 {
		k.results.fault("the kernel killed %d processes because memory ran out", n)
	}
	for _, what := range left {
		k.results.fault("left behind: %s", what)
	}
	for client, outcomes := range k.results.good {
		if outcomes[right] == 0 && client != "model control" && (k.only == "" || !strings.HasSuffix(client, " moves")) {
			k.results.fault("%s has no right answer", client)
		}
	}
}
