package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// outcome is the result of a good request.
type outcome string

const (
	right   outcome = "right"
	refused outcome = "refused" // 503, UNAVAILABLE or RESOURCE_EXHAUSTED
	lost    outcome = "lost"    // inside a process that was lost
	absent  outcome = "absent"  // its model is not loaded at the moment
	wrong   outcome = "wrong"
)

// maxTexts limits the number of distinct texts kept per kind.
const maxTexts = 20

// results counts actions and their results.
type results struct {
	mu     sync.Mutex
	good   map[string]map[outcome]int // by client
	events map[string]int             // of hostile clients and trouble
	texts  map[outcome]map[string]int // of rejections and errors
	faults []string
}

func newResults() *results {
	return &results{good: map[string]map[outcome]int{}, events: map[string]int{}, texts: map[outcome]map[string]int{}}
}

// answered counts an outcome of a good client.
func (t *results) answered(client string, o outcome, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.good[client] == nil {
		t.good[client] = map[outcome]int{}
	}
	t.good[client][o]++
	if text == "" {
		return
	}
	if t.texts[o] == nil {
		t.texts[o] = map[string]int{}
	}
	if o == wrong {
		text = client + ": " + text
	}
	if _, ok := t.texts[o][text]; ok || len(t.texts[o]) < maxTexts {
		t.texts[o][text]++
	}
}

// event counts one action of a client or of the soak itself.
func (t *results) event(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events[what]++
}

func (t *results) count(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events[what]
}

// fault records a reason for the run to fail.
func (t *results) fault(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// sum adds up the outcomes of all good clients.
func (t *results) sum() map[outcome]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[outcome]int{}
	for _, outcomes := range t.good {
		for o, n := range outcomes {
			all[o] += n
		}
	}
	return all
}

// line returns a short summary of the state.
func (t *results) line() string {
	all := t.sum()
	hostile := 0
	t.mu.Lock()
	for what, n := range t.events {
		if strings.HasPrefix(what, "hostile: ") {
			hostile += n
		}
	}
	t.mu.Unlock()
	return fmt.Sprintf("right %d, refused %d, lost %d, absent %d, wrong %d; hostile acts %d, kills %d",
		all[right], all[refused], all[lost], all[absent], all[wrong], hostile, t.count(killed))
}

// print prints all counts.
func (t *results) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("%-24s %9s %9s %9s %9s %9s\n", "good client", right, refused, lost, absent, wrong)
	for _, client := range slices.Sorted(maps.Keys(t.good)) {
		c := t.good[client]
		fmt.Printf("%-24s %9d %9d %9d %9d %9d\n", client, c[right], c[refused], c[lost], c[absent], c[wrong])
	}
	for _, what := range slices.Sorted(maps.Keys(t.events)) {
		fmt.Printf("%7d  %s\n", t.events[what], what)
	}
	for _, o := range slices.Sorted(maps.Keys(t.texts)) {
		for _, text := range slices.Sorted(maps.Keys(t.texts[o])) {
			fmt.Printf("%7d  %s: %s\n", t.texts[o][text], o, text)
		}
	}
}

// verdict prints the faults and reports whether there are any.
func (t *results) verdict() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.faults {
		fmt.Println("FAULT:", f)
	}
	if len(t.faults) == 0 {
		fmt.Println("soak: passed")
		return false
	}
	fmt.Printf("soak: failed, %d faults\n", len(t.faults))
	return true
}
