package logs

import (
	"os"
	"testing"
)

func ConsolePipe(t *testing.T) (*Console, *os.File, *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return newConsole(writer), reader, writer
}

// Usual are the default options.
var Usual = Options{Info: true, Warning: true, Error: true}
