package logs

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestConsoleThatNobodyReads writes far more than a pipe holds, and checks that no write blocks,
// that the kept lines arrive whole and in order, and that dropped lines are counted.
func TestConsoleThatNobodyReads(t *testing.T) {
	c, reader, writer := ConsolePipe(t)
	told := &testkit.Buffer{}
	log := zerolog.New(told)
	c.Log = &log
	const lines = 1000
	for i := range lines {
		fmt.Fprintf(c, "%d %s\n", i, strings.Repeat("x", 10_000))
	}
	c.mu.Lock()
	dropped := c.dropped
	c.mu.Unlock()
	if dropped == 0 || dropped > lines-maxUnread/11_000 {
		t.Fatalf("%d of %d lines were dropped", dropped, lines)
	}
	scanner := bufio.NewScanner(reader)
	kept := 0
	for ; kept < lines-dropped && scanner.Scan(); kept++ {
		if want := fmt.Sprintf("%d %s", kept, strings.Repeat("x", 10_000)); scanner.Text() != want {
			t.Fatalf("line %d is %.20q of %d bytes", kept, scanner.Text(), len(scanner.Text()))
		}
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(told.String(), fmt.Sprintf(`"lines":%d`, dropped))
	})
	c.Flush()
	fmt.Fprintln(c, "after")
	_ = writer.Close()
	if !scanner.Scan() || scanner.Text() != "after" {
		t.Errorf("got %.20q, want the line that came when there was room again", scanner.Text())
	}
}
