package main

import (
	"fmt"
	"io"
)

// serve starts the server and runs it until a signal ends it. It returns the
// exit status.
func serve(o *Options, getenv func(string) string, stdout, stderr io.Writer) int {
	settings := newLogSettings(o.Log)
	log, lines, file, err := newLog(settings, getenv, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	if file != nil {
		defer file.Close()
	}
	for _, name := range o.NoEffect {
		log.Warn().Msg("--" + name + " is accepted but has no effect")
	}

	lines.Table(agentTable())
	lines.Table(o.optionTable(version, nil))
	if err := o.checkRepository(); err != nil {
		fmt.Fprintln(stderr, creatingServer(err))
		return 1
	}
	log.Error().Msg("the rooms behind the command line are not wired: nothing is served")
	return 1
}
