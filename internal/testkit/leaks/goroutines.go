package leaks

import (
	"bytes"
	"runtime"
	"strings"
)

// expectedGoroutines are functions of the runtime and of package testing whose goroutines live as
// long as the process. A test's goroutine may still have to return after its end is known.
var expectedGoroutines = []string{
	"os/signal.signal_recv",
	"os/signal.loop",
	"runtime.ReadTrace",
	"testing.(*M).startAlarm",
	"testing.(*T).Run",
	"testing.runFuzzing",
	"testing.runTests",
}

// listGoroutines lists all goroutines except the caller's.
func listGoroutines(string) ([]item, error) {
	var items []item
	for i, block := range bytes.Split(allStacks(), []byte("\n\n")) {
		stack := strings.TrimSpace(string(block))
		if i == 0 || stack == "" || isExpected(stack) {
			continue // the first one is the caller's own
		}
		// "goroutine 18 [chan receive, 2 minutes]:": the number is the key.
		key, _, _ := strings.Cut(stack, " [")
		items = append(items, item{kind: "goroutine", key: key, text: stack})
	}
	return items, nil
}

func isExpected(stack string) bool {
	for _, function := range expectedGoroutines {
		if strings.Contains(stack, "\n"+function+"(") || strings.Contains(stack, "created by "+function) {
			return true
		}
	}
	return false
}

func allStacks() []byte {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}
