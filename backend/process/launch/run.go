package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// mostPrinted is the number of bytes at the end of a program's output that Run keeps.
const mostPrinted = 64 << 10

// Run starts a program that is not a stub, waits for its end and returns the last 64 KiB of both of
// its outputs, in the order of their writing. The program gets only environment and its mark, and
// runs in directory. A name without a slash is searched in the PATH of this process. When ctx ends,
// the program and its process group are killed; its orphans are killed in either case. The error
// describes the end of the program.
func (c *Children) Run(ctx context.Context, argv, environment []string, directory string) (output string, err error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return "", err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	near, far, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer near.Close()
	if environment == nil {
		environment = []string{}
	}
	command := Command{
		Argv:  append([]string{path}, argv[1:]...), // bound: the caller's arguments
		Files: []*os.File{null, far, far}, Environment: environment, Directory: directory,
	}
	p, err := c.Bear(func() (*Process, error) { return Start(command, c.NewMark()) })
	_ = far.Close() // or the end of the output would not be noticed
	if err != nil {
		return "", err
	}
	var last tail
	read := make(chan struct{}) // closed when all has been read
	panics.Go(c.log, panics.Life, func() {
		defer close(read)
		last.readFrom(near)
	}, nil)
	stop := context.AfterFunc(ctx, panics.Guard(c.log, panics.Life, p.Kill, nil))
	exit := p.Wait()
	stop()
	c.Forget(p)
	c.KillOrphans(p)
	// A process that was not found may hold the other end open.
	_ = near.SetReadDeadline(time.Now().Add(groupLimit))
	<-read
	switch cause := context.Cause(ctx); {
	case exit.Code == 0:
		return last.text(), nil
	case cause != nil && exit.Signal != 0:
		return last.text(), fmt.Errorf("%s was ended: %w", filepath.Base(path), cause)
	}
	return last.text(), errors.New(filepath.Base(path) + " " + exit.how())
}

// tail keeps the last bytes of a stream.
type tail struct {
	kept []byte // bound: twice mostPrinted, and one read
}

// readFrom reads until the end of file or an error.
func (t *tail) readFrom(file *os.File) {
	buffer := make([]byte, 4<<10)
	for {
		n, err := file.Read(buffer)
		t.kept = append(t.kept, buffer[:n]...)
		if len(t.kept) > 2*mostPrinted {
			t.kept = append(t.kept[:0], t.kept[len(t.kept)-mostPrinted:]...)
		}
		if err != nil {
			return
		}
	}
}

func (t *tail) text() string { return string(t.kept[max(0, len(t.kept)-mostPrinted):]) }
