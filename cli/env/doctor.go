package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/conda/cache"
)

// doctor reports whether models can run in an environment, and the remedy if not.
func doctor(ctx context.Context, i *invocation) error {
	limit := i.flags.Duration("timeout", 5*time.Minute, "maximum `TIME` for unpacking and running the interpreter")
	return i.withOptions(func(options cache.Options) error {
		if _, err := command.One(i.names, "the path"); err != nil {
			return err
		}
		if *limit <= 0 {
			return &command.UsageError{Text: fmt.Sprintf("--timeout is %s, want more than 0s", *limit)}
		}
		ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("--timeout is %s", *limit))
		defer cancel()
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		report := examine(ctx, i.names[0], here, options)
		if i.json {
			err = i.printJSON(report)
		} else {
			_, err = fmt.Fprint(i.stdout, report)
		}
		if err == nil && report.Err() != nil {
			err = command.ErrTrouble
		}
		return err
	})
}

// examine checks the environment that a value of EXECUTION_ENV_PATH refers to. It unpacks an
// archive into the cache, where a server finds it later.
func examine(ctx context.Context, value, here string, options cache.Options) *conda.Report {
	failed := func(err error) *conda.Report {
		return &conda.Report{Path: value, Problems: []*conda.Problem{{Text: err.Error()}}}
	}
	envPath, err := conda.Locate(value, here)
	if err != nil {
		return failed(err)
	}
	if envPath.Kind != conda.Archive {
		return conda.Examine(ctx, envPath, runProgram, os.Environ())
	}
	c, err := cache.Open(options)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	unpacked, err := c.Archive(ctx, envPath.Path)
	if err != nil {
		return failed(err)
	}
	defer unpacked.Release()
	return conda.Examine(ctx, conda.EnvPath{Kind: conda.Directory, Path: unpacked.Directory, Archive: envPath.Path}, runProgram, os.Environ())
}

// mostOutput is the number of bytes kept from the end of a program's output.
const mostOutput = 64 << 10

// runProgram is a conda.Run.
func runProgram(ctx context.Context, argv, env []string, dir string) (string, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env, command.Dir = env, dir
	var output ending
	command.Stdout, command.Stderr = &output, &output
	// Processes left behind by the program may hold its output open.
	command.WaitDelay = time.Second
	err := command.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return string(output.bytes), err
}

// ending is a writer that keeps the last bytes.
type ending struct{ bytes []byte }

func (e *ending) Write(p []byte) (int, error) {
	e.bytes = append(e.bytes, p[max(0, len(p)-mostOutput):]...)
	if over := len(e.bytes) - mostOutput; over > 0 {
		e.bytes = append(e.bytes[:0], e.bytes[over:]...)
	}
	return len(p), nil
}
