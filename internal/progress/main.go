// Command progress runs "go test" and reports its progress: a line for each package when its tests
// have ended, the running tests after a long silence, and at the end the counts, the reasons for
// skipped tests, and the slowest tests. It prints the output of failed tests completely, and
// nothing from passed ones.
//
//	go run ./internal/progress [flags of go test] packages
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// silence is the time without output after which the running tests are named.
const silence = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "progress:", err)
		code = 1
	}
	os.Exit(code)
}

// run returns the exit code of go test.
func run(ctx context.Context, args []string) (int, error) {
	goCommand := os.Getenv("GO")
	if goCommand == "" {
		goCommand = "go"
	}
	flags, patterns := splitArguments(args)
	packages, err := listTested(ctx, goCommand, patterns)
	if err != nil {
		return 0, err
	}

	cmd := exec.CommandContext(ctx, goCommand, append(append([]string{"test", "-json"}, flags...), packages...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", goCommand, err)
	}
	r := newReport(os.Stdout, len(packages), time.Now)
	copyErr := follow(r, stdout)
	waitErr := cmd.Wait()
	r.end()

	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, errors.Join(copyErr, waitErr)
}

// splitArguments separates the flags of go test from the packages after them: a package begins with
// a dot.
func splitArguments(args []string) (flags, patterns []string) {
	for i, arg := range args {
		if strings.HasPrefix(arg, ".") {
			return args[:i], args[i:]
		}
	}
	return args, []string{"./..."}
}

// listTested returns the packages that have tests.
func listTested(ctx context.Context, goCommand string, patterns []string) ([]string, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	cmd := exec.CommandContext(ctx, goCommand, append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(output)), nil
}

// follow passes each line of go test, and regular ticks, to the report until go test closes its
// output.
func follow(r *report, output io.Reader) error {
	var mu sync.Mutex
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				mu.Lock()
				r.tick()
				mu.Unlock()
			}
		}
	})
	defer ticking.Wait()
	defer close(done)

	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		mu.Lock()
		if len(line) > 0 {
			r.line(line)
		}
		mu.Unlock()
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("read what go test says: %w", err)
		}
	}
}
