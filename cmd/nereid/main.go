// Command nereid serves Triton model repositories of Python models over HTTP and
// gRPC. Its command line is that of tritonserver, under whichever name it is
// called.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(run(os.Args, os.Getenv, os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit status.
func run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	program := filepath.Base(args[0])
	options, err := parseOptions(args[1:], getenv, stderr)
	if errors.Is(err, errVersion) {
		fmt.Fprintln(stdout, "nereid", version)
		return 0
	}
	if err != nil {
		explain(err, program, stderr)
		return 1
	}
	return serve(options, getenv, stdout, stderr)
}

// explain shows what is wrong with the command line, around the usage.
func explain(err error, program string, stderr io.Writer) {
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		fmt.Fprintf(stderr, "%s: %s\n", program, syntax.complaint)
		writeUsage(stderr, program)
		if syntax.hint != "" {
			fmt.Fprintf(stderr, "%s: %s\n", syntax.complaint, syntax.hint)
		}
		return
	}
	writeUsage(stderr, program)
	if !errors.Is(err, errHelp) {
		fmt.Fprintln(stderr, err)
	}
}
