package devices

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// copying is a Copier on two fake devices, with its test environment.
type copying struct {
	*Copier
	t        *testing.T
	state    string // the fake driver's call counts
	lost     string // the file that makes devices fail
	children *launch.Children
	log      *testkit.Buffer
	makers   uint64 // cuInit calls made by makers
}

// startCopier starts a Copier after change has edited its config. faults are the fake driver's
// faults, in each process.
func startCopier(t *testing.T, faults string, change func(*CopierConfig)) *copying {
	t.Helper()
	helper, err := filepath.Abs("../stub/nereid_devices")
	if err != nil {
		t.Fatal(err)
	}
	c := &copying{t: t, state: filepath.Join(t.TempDir(), "state"), lost: filepath.Join(t.TempDir(), "lost"), log: &testkit.Buffer{}}
	t.Setenv("LD_LIBRARY_PATH", fakecuda.Dir(t))
	t.Setenv(fakecuda.State, c.state)
	t.Setenv(fakecuda.Lost, c.lost)
	t.Setenv(fakecuda.Fail, faults)
	if c.children, err = launch.NewChildren(zerolog.New(c.log), false); err != nil {
		t.Fatal(err)
	}
	region, err := shm.NewRegion(shm.Memfd{}, 1<<24, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, shm.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	python := testkit.Python(t).Path
	config := CopierConfig{
		Children: c.children, Helper: helper, Requests: pool, Log: zerolog.New(c.log),
		Interpreters: func() ([]string, error) { return []string{python}, nil },
		List: func() []Device {
			return []Device{{Number: 0, UUID: fakecuda.UUID(0)}, {Number: 1, UUID: fakecuda.UUID(1)}}
		},
	}
	if change != nil {
		change(&config)
	}
	c.Copier = NewCopier(config)
	t.Cleanup(func() {
		c.Close()
		testkit.Eventually(t, Limit, func() bool { return c.children.Count() == 0 })
		testkit.Eventually(t, Limit, func() bool { return pool.Stats().Blocks == 0 })
		c.children.Close()
		pool.Close()
		if t.Failed() {
			t.Logf("log:\n%s", c.log)
		}
	})
	return c
}

// makes is the Python program of a process with 5000 values on a device.
const makes = `
import sys
sys.path[:0] = sys.argv[2:]
import numpy as np
from c_python_backend_utils import cuda
from producer import OnDevice

made = OnDevice(np.arange(5000, dtype=np.float32), int(sys.argv[1]))
device = cuda.device(int(sys.argv[1]))
print(device.uuid().hex(), device.handle_of(made.address).hex(), flush=True)
sys.stdin.read()
`

// maker starts such a process. It returns the process's lent memory and a function that ends the
// process.
func (c *copying) maker(device int) (lent *foreign.Device, end func()) {
	c.t.Helper()
	root := testkit.Root(c.t)
	maker := exec.Command(testkit.Python(c.t).Path, "-c", makes, fmt.Sprint(device), filepath.Join(root, "stub", "tests"), filepath.Join(root, "pyutils"))
	// The maker is a separate program; faults of the helpers' driver do not affect it.
	maker.Env = append(os.Environ(), fakecuda.Lost+"=", fakecuda.Fail+"=")
	before := fakecuda.ReadCounts(c.t, c.state).Calls["cuInit"]
	stdin, err := maker.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := maker.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = stdin.Close()
			_, _ = io.Copy(io.Discard, stdout)
			_ = maker.Wait()
		}
	}
	c.t.Cleanup(end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 2 {
		c.t.Fatalf("the maker says %q: %v", line, err)
	}
	c.makers += fakecuda.ReadCounts(c.t, c.state).Calls["cuInit"] - before
	var uuid [16]byte
	var handle foreign.Handle
	for i, into := range [][]byte{uuid[:], handle[:]} {
		if n, err := hex.Decode(into, []byte(words[i])); err != nil || n != len(into) {
			c.t.Fatalf("the maker says %q: %v", line, err)
		}
	}
	return foreign.NewDevice(uint32(device), uuid, 20_000, handle), end
}

// lose makes each driver call of the helpers fail or hang, as what specifies.
func (c *copying) lose(what string) {
	c.t.Helper()
	fresh := c.lost + ".new" // written first, then renamed: appears atomically
	if err := os.WriteFile(fresh, []byte(what), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(fresh, c.lost); err != nil {
		c.t.Fatal(err)
	}
}

func (c *copying) find() {
	c.t.Helper()
	if err := os.Remove(c.lost); err != nil {
		c.t.Fatal(err)
	}
}

// copies copies the second half of the lent memory.
func (c *copying) copies(lent *foreign.Device) error {
	data, memory, err := c.Copy(c.t.Context(), lent, 10_000, 10_000)
	if err != nil {
		return err
	}
	defer memory.Release()
	if want := []byte{0, 0x40, 0x1c, 0x45}; len(data) != 10_000 || string(data[:4]) != string(want) { // 2500
		c.t.Errorf("got %d bytes, the first %x, want 10000 and %x", len(data), data[:4], want)
	}
	return nil
}

func (c *copying) wantError(err error, text string) {
	c.t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		c.t.Errorf("got error %v, want one that says %q", err, text)
	}
}

// blocks returns the number of blocks that copies hold.
func (c *copying) blocks() int { return c.config.Requests.Stats().Blocks }

// helpers returns the PIDs of the helpers with a command in progress.
func (c *copying) helpers() (pids []int) {
	for _, l := range c.lanes() {
		if h := l.running.Load(); h != nil && len(l.turn) > 0 {
			pids = append(pids, h.process.PID())
		}
	}
	return pids
}

// processes returns the number of helpers started so far.
func (c *copying) processes() int {
	return int(fakecuda.ReadCounts(c.t, c.state).Calls["cuInit"] - c.makers)
}

// TestCopiesOfDevicesDoNotWaitForEachOther checks that copies from one device proceed while another
// device's driver hangs. Close ends the hanging copy.
func TestCopiesOfDevicesDoNotWaitForEachOther(t *testing.T) {
	c := startCopier(t, "", nil)
	first, _ := c.maker(0)
	second, _ := c.maker(1)
	for _, lent := range []*foreign.Device{first, second} {
		if err := c.copies(lent); err != nil {
			t.Fatal(err)
		}
	}
	c.lose("hang 0")
	hangs := make(chan error, 1) // from the hanging copy
	go func() { hangs <- c.copies(first) }()
	testkit.Eventually(t, Limit, func() bool { return c.blocks() == 1 })
	for range 3 {
		if err := c.copies(second); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-hangs:
		t.Errorf("the copy that hangs has come back: %v", err)
	default:
	}
	c.Close()
	c.wantError(<-hangs, "the device helper ended")
	c.wantError(c.copies(second), "the server is shutting down")
}

// TestCopyThatHangs checks that a hanging copy returns an error and its helper is killed. The next
// copy starts another helper, even if SIGKILL takes long.
func TestCopyThatHangs(t *testing.T) {
	for _, end := range []time.Duration{0, time.Nanosecond} {
		t.Run(fmt.Sprint("patience ", end), func(t *testing.T) {
			c := startCopier(t, "", func(config *CopierConfig) { config.CopyTimeout, config.EndTimeout = 200*time.Millisecond, end })
			lent, _ := c.maker(0)
			c.lose("hang 0")
			c.wantError(c.copies(lent), errSilent.Error())
			c.find()
			testkit.Eventually(t, Limit, func() bool { return c.copies(lent) == nil })
			if text := c.log.String(); !strings.Contains(text, fakecuda.UUID(0)) {
				t.Errorf("the log does not name the device:\n%s", text)
			}
		})
	}
}

// TestCopiesBehindOneThatHangs checks that copies behind a hanging one hold no memory and end with
// their requests. Once it has timed out, the others do not wait for a timeout of their own. Copies
// from other devices continue.
func TestCopiesBehindOneThatHangs(t *testing.T) {
	c := startCopier(t, "", nil)
	first, _ := c.maker(0)
	second, _ := c.maker(1)
	if err := c.copies(second); err != nil {
		t.Fatal(err)
	}
	c.config.CopyTimeout = time.Hour
	c.lose("hang 0")
	hangs := make(chan error, 1) // from the copy that has the turn
	go func() { hangs <- c.copies(first) }()
	testkit.Eventually(t, Limit, func() bool { return c.blocks() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 6) // from copies both ways and registrations
	for range 2 {
		go func() {
			_, _, err := c.Copy(ctx, first, 0, 20_000)
			waits <- err
		}()
		go func() { waits <- c.Write(ctx, first, 0, make([]byte, 20_000)) }()
		go func() {
			_, err := c.Open(ctx, 0, first.Handle)
			waits <- err
		}()
	}
	if err := c.copies(second); err != nil {
		t.Errorf("the other device: %v", err)
	}
	if n := c.blocks(); n != 1 {
		t.Errorf("%d blocks are taken, want that of the copy that hangs", n)
	}
	cancel()
	for range cap(waits) {
		var e *infer.Error
		if err := <-waits; !errors.As(err, &e) || e.Code != infer.Cancelled {
			t.Errorf("a command whose request has ended: got %v, want the code Cancelled", err)
		}
	}
	// The helper ends without a reply, and the next one does not reply in time.
	for _, pid := range c.helpers() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	c.wantError(<-hangs, "the device helper ended")
	c.config.CopyTimeout = 200 * time.Millisecond
	c.wantError(c.copies(first), errSilent.Error())
	c.config.CopyTimeout = time.Hour
	go func() { hangs <- c.copies(first) }()
	testkit.Eventually(t, Limit, func() bool { return c.blocks() == 1 })
	for range 3 {
		c.wantError(c.copies(first), errDoubtful.Error())
		c.wantError(c.Write(t.Context(), first, 0, make([]byte, 100)), errDoubtful.Error())
		if err := c.copies(second); err != nil {
			t.Errorf("the other device: %v", err)
		}
	}
	if got := c.processes(); got != 4 {
		t.Errorf("%d helpers were started, want 3 for the device that hangs and one for the other", got)
	}
	c.Close()
	c.wantError(<-hangs, "the device helper ended")
}

// TestNothingOutsideIsCopied checks that copies beyond an allocation fail. The maker may have
// announced any size.
func TestNothingOutsideIsCopied(t *testing.T) {
	c := startCopier(t, "", nil)
	lent, end := c.maker(0)
	for _, r := range [][2]uint64{{0, 20001}, {19999, 2}, {20000, 1}, {1 << 63, 8}} {
		_, _, err := c.Copy(t.Context(), lent, r[0], r[1])
		if c.wantError(err, "lie outside the 20000 of the allocation"); err == nil {
			return
		}
	}
	if err := c.copies(lent); err != nil {
		t.Error(err)
	}
	end()
}

// TestLostDeviceHasAnotherHelper checks that the helper is replaced after an error that makes its
// CUDA context unusable, but not after one failed call. Other devices are not affected.
func TestLostDeviceHasAnotherHelper(t *testing.T) {
	c := startCopier(t, "cuMemcpyDtoH_v2:2=700", nil)
	first, _ := c.maker(0)
	second, _ := c.maker(1)
	if err := c.copies(first); err != nil {
		t.Fatal(err)
	}
	c.wantError(c.copies(first), "CUDA_ERROR_ILLEGAL_ADDRESS")
	if err := c.copies(first); err != nil || c.processes() != 1 {
		t.Errorf("after one error: got error %v and %d processes, want none and 1", err, c.processes())
	}
	if err := c.copies(second); err != nil {
		t.Fatal(err)
	}
	for n, code := range map[string]string{"719": "CUDA_ERROR_LAUNCH_FAILED", "214": "CUDA_ERROR_ECC_UNCORRECTABLE"} {
		before := c.processes()
		c.lose(n + " 0")
		c.wantError(c.copies(first), code)
		c.wantError(c.Write(t.Context(), first, 0, make([]byte, 100)), code)
		c.find()
		if err := c.copies(first); err != nil {
			t.Errorf("after the device has come back: %v", err)
		}
		if got := c.processes() - before; got != 2 {
			t.Errorf("%d processes more, want one for each command after one that has lost its device", got)
		}
	}
	// The fault hits each process's second copy, so this error shows that the helper is still the
	// same.
	c.wantError(c.copies(second), "CUDA_ERROR_ILLEGAL_ADDRESS")
}

// TestDeviceWithoutMemory checks that a failed allocation is an error only for its own command. The
// helper keeps running, and the next command succeeds.
func TestDeviceWithoutMemory(t *testing.T) {
	for _, function := range []string{"cuDevicePrimaryCtxRetain", "cuIpcOpenMemHandle_v2", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"} {
		t.Run(function, func(t *testing.T) {
			c := startCopier(t, function+":1=2", nil)
			lent, _ := c.maker(0)
			act := func() error { return c.copies(lent) }
			if function == "cuMemcpyHtoD_v2" {
				act = func() error { return c.Write(t.Context(), lent, 0, make([]byte, 5000)) }
			}
			c.wantError(act(), "CUDA_ERROR_OUT_OF_MEMORY")
			if err := act(); err != nil {
				t.Errorf("with memory: %v", err)
			}
			if got := c.processes(); got != 1 {
				t.Errorf("%d processes were started, want 1", got)
			}
		})
	}
}

// TestRegionsOfALostDevice checks that registered memory of a lost device is reopened if its client
// is still running.
func TestRegionsOfALostDevice(t *testing.T) {
	c := startCopier(t, "", nil)
	lent, _ := c.maker(1)
	other, end := c.maker(1)
	stays, err := c.Open(t.Context(), 1, lent.Handle)
	if err != nil {
		t.Fatal(err)
	}
	left, err := c.Open(t.Context(), 1, other.Handle)
	if err != nil {
		t.Fatal(err)
	}
	end()
	for _, region := range []*foreign.Device{stays, left} {
		if err := c.copies(region); err != nil {
			t.Errorf("the helper holds it: %v", err)
		}
	}
	c.lose("719 1")
	c.wantError(c.copies(stays), "CUDA_ERROR_LAUNCH_FAILED")
	c.wantError(c.copies(stays), "failed to open CUDA IPC handle: unspecified launch failure")
	if _, err := c.Open(t.Context(), 1, lent.Handle); err == nil {
		t.Error("memory of a lost device was registered")
	}
	c.find()
	if err := c.copies(stays); err != nil {
		t.Errorf("its client lives: %v", err)
	}
	c.wantError(c.copies(left), "failed to open CUDA IPC handle")
	stays.Release()
	left.Release()
	testkit.Eventually(t, Limit, func() bool { return fakecuda.ReadCounts(t, c.state).Live(fakecuda.Opened) == 0 })
	if _, err := c.Open(t.Context(), 7, lent.Handle); err == nil || !strings.Contains(err.Error(), "invalid device ordinal") {
		t.Errorf("a device that is not there: got error %v, want the driver's", err)
	}
	c.wantError(c.copies(foreign.NewDevice(0, [16]byte{7}, 20_000, lent.Handle)), "no device has the UUID")
}
