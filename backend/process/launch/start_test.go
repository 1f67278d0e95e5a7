package launch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/launch"
)

// TestBusyProgramsAreTriedAgain starts a program that is still open for writing, as it is in a
// child of this process between its fork and the execution of its own program.
func TestBusyProgramsAreTriedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o700) //nolint:gosec // an executable
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("#!/bin/sh\nexit 3\n"); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	time.AfterFunc(20*time.Millisecond, func() { _ = file.Close() })
	c, err := launch.NewChildren(zerolog.Nop(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.Bear(func() (*launch.Process, error) {
		return launch.Start(launch.Command{Argv: []string{path}, Files: []*os.File{null, null, null}}, c.NewMark())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Forget(p)
	if exit := p.Wait(); exit.Code != 3 {
		t.Errorf("got %v, want code 3", exit)
	}
}
