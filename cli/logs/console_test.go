package logs_test

import (
	"os"
	"testing"

	"github.com/nereid-serving/nereid/cli/logs"
)

// TestConsoleThatWasClosed checks that writes succeed after the console's reader has closed the
// pipe.
func TestConsoleThatWasClosed(t *testing.T) {
	c, reader, _ := logs.ConsolePipe(t)
	_ = reader.Close()
	for range 3 {
		if n, err := c.Write([]byte("line\n")); n != 5 || err != nil {
			t.Errorf("Write: got %d, %v", n, err)
		}
	}
	c.Flush()
}

// TestConsolesFindThatTheyAreOne checks that two outputs share a console only if they lead to the
// same pipe.
func TestConsolesFindThatTheyAreOne(t *testing.T) {
	_, reader, writer := logs.ConsolePipe(t)
	if out, err := logs.NewConsoles(writer, writer); out != err {
		t.Error("two consoles for one pipe")
	}
	if out, err := logs.NewConsoles(reader, os.Stderr); out == err {
		t.Error("one console for two files")
	}
}
