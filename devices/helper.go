package devices

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/panics"
)

// maxLine limits a line of a helper: enough for hundreds of devices.
const maxLine = 256 << 10

// helper is a process that uses the driver.
type helper struct {
	process  *launch.Process
	devices  []Device // counted by it
	requests *os.File // its stdin
	replies  *os.File // its stdout
	lines    *bufio.Reader
	lifeline *os.File // closing it kills the helper
	printed  *output.Capture
	gone     chan struct{} // closed when the process has been reaped
	given    chan struct{} // closed by Samples when it gives the helper up
	patience time.Duration // time for its end after SIGKILL
}

// errSilent is the error of a helper that did not answer in time.
var errSilent = errors.New("the CUDA driver or NVML does not answer")

// errClosed is the error of commands after Close.
var errClosed = errors.New("the server is shutting down")

// errStuck is the error of a helper that SIGKILL does not end, because the kernel waits inside the
// driver.
var errStuck = errors.New("the device helper does not end, as a call of the driver hangs in the kernel")

// open starts a helper with the first interpreter that can run it, and makes it count.
func (d *Devices) open(ctx context.Context) (*helper, error) {
	interpreters, err := d.config.Interpreters()
	if err != nil {
		return nil, err
	}
	for _, interpreter := range interpreters {
		var h *helper
		if h, err = d.start(interpreter); err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, panics.Guard(d.config.Log, panics.Life, h.process.Kill, nil))
		err = h.count(d.config.CountTimeout)
		stop()
		if err == nil {
			return h, nil
		}
		stuck := h.close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if stuck != nil {
			return nil, fmt.Errorf("%w: %w", err, stuck)
		}
		var refused *refusal
		if errors.As(err, &refused) || errors.Is(err, errSilent) {
			return nil, err // another interpreter has the same driver
		}
		err = fmt.Errorf("device helper of %s: %w", interpreter, err)
	}
	return nil, err
}

// start starts a helper that counts and measures.
func (d *Devices) start(interpreter string) (*helper, error) {
	// -I and -S: the user's packages have no influence.
	return startHelper(d.config.Children, d.config.Log, []string{interpreter, "-I", "-S", "-u", d.config.Helper}, nil, d.config.EndTimeout)
}

// startHelper starts a helper, which inherits the files as its descriptors from 4 on. patience is
// the time for its end.
func startHelper(children *launch.Children, log zerolog.Logger, argv []string, inherited []*os.File, patience time.Duration) (_ *helper, err error) {
	h := &helper{gone: make(chan struct{}), given: make(chan struct{}), patience: patience}
	var files [4]*os.File // stdin, stdout, stderr, lifeline of the helper
	defer func() {
		for _, f := range files {
			_ = f.Close() // harmless if nil
		}
		if err != nil {
			h.closeFiles()
		}
	}()
	if files[0], h.requests, err = os.Pipe(); err != nil {
		return nil, err
	}
	if h.replies, files[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if files[3], h.lifeline, err = os.Pipe(); err != nil {
		return nil, err
	}
	// The output of drivers is useful if the helper fails, and noise otherwise.
	printed, ends, err := output.Open(zerolog.Nop(), [2]io.Writer{}, output.Limits{})
	if err != nil {
		return nil, err
	}
	_ = ends[0].Close()
	files[2] = ends[1]
	h.process, err = children.Bear(func() (*launch.Process, error) {
		return launch.Start(launch.Command{Argv: argv, Files: append(files[:], inherited...)}, children.NewMark()) // bound: the callers' one file
	})
	if err != nil {
		printed.Close()
		return nil, err
	}
	launch.Arm(files[3], h.process)
	h.printed = printed
	h.printed.Begin()
	h.lines = bufio.NewReaderSize(h.replies, maxLine) // bound: maxLine
	panics.Go(log, panics.Life, func() {
		defer close(h.gone)
		defer children.Forget(h.process)
		_ = h.process.Wait()
	}, nil)
	return h, nil
}

// refusal is the driver's error if it does not work.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// count reads the list of devices, the first line of a helper.
func (h *helper) count(limit time.Duration) error {
	var reply struct {
		Devices []Device `json:"devices"`
		Error   string   `json:"error"`
		None    bool     `json:"none"` // the driver works but shows no device
	}
	if err := h.receive(&reply, limit); err != nil {
		return err
	}
	if reply.Error != "" && !reply.None {
		return &refusal{reply.Error}
	}
	for i := range reply.Devices {
		if one := &reply.Devices[i]; int(one.Number) != i || one.UUID == "" {
			return fmt.Errorf("device %d has the number %d and the UUID %q", i, one.Number, one.UUID)
		}
	}
	h.devices = reply.Devices
	return nil
}

// ask asks for a sample of all devices.
func (h *helper) ask(into any, limit time.Duration) error {
	return h.say([]byte("sample\n"), into, limit)
}

// say sends a line and reads the response.
func (h *helper) say(line []byte, into any, limit time.Duration) error {
	if err := h.requests.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := h.requests.Write(line); err != nil {
		return h.lost()
	}
	return h.receive(into, limit)
}

// receive reads one line of JSON.
func (h *helper) receive(into any, limit time.Duration) error {
	if err := h.replies.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	line, err := h.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w within %s", errSilent, limit)
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("it sent a line of more than %d bytes", maxLine)
	case err != nil:
		return h.lost()
	}
	if err := json.Unmarshal(line, into); err != nil { // bound: maxLine
		return fmt.Errorf("read its answer: %w", err)
	}
	return nil
}

// lost ends a helper that has ended, or is about to, and returns an error with its last output.
func (h *helper) lost() error {
	if err := h.end(); err != nil {
		return err
	}
	if lines := h.printed.LastLines(); len(lines) > 0 {
		return fmt.Errorf("the device helper ended (it printed: %s)", lines[len(lines)-1])
	}
	return errors.New("the device helper ended")
}

// end kills the helper and waits for its end, which a driver can block: no longer than patience,
// because loads of models wait for it.
func (h *helper) end() (err error) {
	h.process.Kill()
	patience := time.NewTimer(h.patience)
	defer patience.Stop()
	select {
	case <-h.gone:
	case <-patience.C:
		err = errStuck
	}
	h.printed.Finish()
	return err
}

// close ends the helper, which has nothing to clean up. The error is errStuck.
func (h *helper) close() error {
	err := h.end()
	h.closeFiles()
	return err
}

func (h *helper) closeFiles() {
	for _, f := range []*os.File{h.requests, h.replies, h.lifeline} {
		_ = f.Close() // harmless if nil
	}
}
