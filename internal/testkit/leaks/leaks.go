// Package leaks fails the tests of a package if, half a minute after the last one, one of these
// exists that did not exist before the first test:
//
//	goroutine    started by the tests or the code under test
//	file         an open descriptor of this process
//	process      a child, dead or alive, or an orphaned descendant
//	name         an object in /dev/shm
//	mapping      memory of a memfd or of /dev/shm, or with the product's name
package leaks

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// patience is how long things may take to go away after the last test, on a machine that is busy
// with other tests.
var patience = 30 * time.Second

// markVariable marks the descendants of a test binary, so that orphans are found as well.
const markVariable = "NEREID_TESTKIT"

// Run runs the tests of a package. It returns their status if they failed, else 1 if they left
// something behind, else 0.
func Run(m *testing.M) int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if flag.Lookup("test.fuzzworker").Value.String() == "true" {
		return m.Run() // the coordinator's pipes and goroutines would count
	}
	mark := strconv.Itoa(os.Getpid()) + "." + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := os.Setenv(markVariable, mark); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		return 1
	}
	before, err := takeInventory(mark)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		return 1
	}

	if code := m.Run(); code != 0 {
		return code // a failed test rarely cleans up, and its own message is more important
	}

	left, err := waitForNothing(before, mark)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		return 1
	}
	for _, item := range left {
		fmt.Fprintf(os.Stderr, "testkit: the tests left a %s behind: %s\n", item.kind, item.text)
	}
	if len(left) > 0 {
		return 1
	}
	return 0
}

// waitForNothing waits until everything new is gone, or patience has run out. It returns the rest.
func waitForNothing(before inventory, mark string) ([]item, error) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		now, err := takeInventory(mark)
		if err != nil {
			return nil, err
		}
		left := now.without(before)
		if len(left) == 0 || time.Now().After(deadline) {
			return left, nil
		}
		time.Sleep(wait)
	}
}

// item is something that a test may leave behind. Items with the same key are the same.
type item struct {
	kind string // as in the package's documentation
	key  string
	text string // one line for the reader; a goroutine's stack has more
}

type inventory []item

// takeInventory lists everything that this process currently has.
func takeInventory(mark string) (inventory, error) {
	var all inventory
	for _, list := range []func(mark string) ([]item, error){
		listGoroutines, listFiles, listProcesses, listNames, listMappings,
	} {
		items, err := list(mark)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}

// without returns the items that earlier does not have. A key that occurs more often than before is
// reported that many times.
func (now inventory) without(earlier inventory) []item {
	had := make(map[string]int, len(earlier))
	for _, it := range earlier {
		had[it.kind+" "+it.key]++
	}
	left := slices.Clone([]item(now))
	return slices.DeleteFunc(left, func(it item) bool {
		key := it.kind + " " + it.key
		had[key]--
		return had[key] >= 0
	})
}
