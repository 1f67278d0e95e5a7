// Command progress runs "go test" and reports its progress: a line for each package when its tests
// have ended, the running tests after a long silence, and at the end the counts, the reasons for
// skipped tests, and the slowest tests. It prints the output of failed tests completely, and
// nothing from passed ones.
//
//	go run ./internal/progress [-split=N:package,…] [flags of go test] packages
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
	"slices"
	"strconv"
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

// splitFlag names packages whose tests run at last, each package in N processes at once. It is for
// many tests that start processes, and wait for them.
const splitFlag = "-split="

// run returns the exit code of go test.
func run(ctx context.Context, args []string) (int, error) {
	g := goTests{command: os.Getenv("GO")}
	if g.command == "" {
		g.command = "go"
	}
	var last []string
	parts := 0
	if len(args) > 0 && strings.HasPrefix(args[0], splitFlag) {
		number, names, _ := strings.Cut(strings.TrimPrefix(args[0], splitFlag), ":")
		var err error
		if parts, err = strconv.Atoi(number); err != nil || parts < 1 {
			return 0, fmt.Errorf("%s: %q is not a number of processes", args[0], number)
		}
		last, args = strings.Split(names, ","), args[1:]
	}
	flags, patterns := splitArguments(args)
	packages, err := g.listTested(ctx, patterns)
	if err != nil {
		return 0, err
	}
	g.flags = flags
	g.report = newReport(os.Stdout, len(packages)+parts*len(last), time.Now)
	stopTicks := g.tick()
	code, err := g.test(ctx, "", packages)
	for _, pkg := range last {
		if err != nil || ctx.Err() != nil {
			break
		}
		var partsCode int
		partsCode, err = g.testParts(ctx, pkg, parts)
		code = max(code, partsCode)
	}
	stopTicks()
	g.report.end()
	return code, err
}

// goTests runs go test and reports on it.
type goTests struct {
	command string
	flags   []string
	mu      sync.Mutex
	report  *report // guarded by mu
}

// test runs go test for packages, or for part of one, which has a label. It returns the exit code.
func (g *goTests) test(ctx context.Context, label string, arguments []string) (int, error) {
	cmd := exec.CommandContext(ctx, g.command, append(append([]string{"test", "-json"}, g.flags...), arguments...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", g.command, err)
	}
	copyErr := g.follow(label, stdout)
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, errors.Join(copyErr, waitErr)
}

// testParts runs the tests of a package in several processes at once.
func (g *goTests) testParts(ctx context.Context, pkg string, parts int) (int, error) {
	cmd := exec.CommandContext(ctx, g.command, append(append([]string{"test", "-list", "."}, g.flags...), pkg)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("list the tests of %s: %w", pkg, err)
	}
	codes, errs := make([]int, parts), make([]error, parts)
	var all sync.WaitGroup
	for i, names := range split(string(output), parts) {
		all.Go(func() {
			run := "^(" + strings.Join(names, "|") + ")$"
			codes[i], errs[i] = g.test(ctx, fmt.Sprintf(" (%d)", i+1), []string{"-run", run, pkg})
		})
	}
	all.Wait()
	return slices.Max(codes), errors.Join(errs...)
}

// split deals the listed tests out to parts.
func split(list string, parts int) [][]string {
	dealt := make([][]string, parts)
	n := 0
	for name := range strings.FieldsSeq(list) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			dealt[n%parts] = append(dealt[n%parts], name)
			n++
		}
	}
	return dealt
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
func (g *goTests) listTested(ctx context.Context, patterns []string) ([]string, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	cmd := exec.CommandContext(ctx, g.command, append([]string{"list", "-f", format}, patterns...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	return strings.Fields(string(output)), nil
}

// tick passes regular ticks to the report until the returned function is called.
func (g *goTests) tick() (stop func()) {
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
				g.mu.Lock()
				g.report.tick()
				g.mu.Unlock()
			}
		}
	})
	return func() {
		close(done)
		ticking.Wait()
	}
}

// follow passes each line of go test to the report until go test closes its output.
func (g *goTests) follow(label string, output io.Reader) error {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		g.mu.Lock()
		if len(line) > 0 {
			g.report.line(label, line)
		}
		g.mu.Unlock()
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}
