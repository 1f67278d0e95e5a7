package plugin_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
)

// server is the server's side of a plugin's process. Its real channel sends whatever a test wants.
type server struct {
	t        *testing.T
	channel  *ipc.Channel
	requests *shm.Region
	frames   chan ipc.Frame
	exited   chan struct{} // closed when the process has ended with exit
	exit     error
}

// newServer starts a process of the actor and waits for HELLO.
func newServer(t *testing.T) *server {
	t.Helper()
	channel, err := ipc.New(ipc.Config{Life: 1, UpSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := requests.Reserve(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	file, err := requests.OpenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	files := channel.Peer()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Once the protocol has begun, the process prints to the two last files.
	var printed testkit.Buffer
	process := exec.Command(self)
	process.Stdout, process.Stderr = &printed, &printed
	process.ExtraFiles = []*os.File{files.Down, files.Up, file, files.DownBell, files.UpBell, files.Lifeline, os.Stdout, os.Stderr}
	process.Env = append(os.Environ(), ipc.PluginCookieKey+"="+ipc.PluginCookieValue, ipc.PluginFilesEnv+"=3,4,5,6,7,8,9,10",
		ipc.PluginVersionsEnv+"="+strconv.Itoa(ipc.PluginVersion))
	err = process.Start()
	files.Close()
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	v := &server{t: t, channel: channel, requests: requests, frames: make(chan ipc.Frame, 1000), exited: make(chan struct{})}
	ran := make(chan error, 1)
	go func() { ran <- channel.Run(func(f ipc.Frame) error { v.frames <- f; return nil }) }()
	go func() {
		defer close(v.exited)
		v.exit = process.Wait()
	}()
	t.Cleanup(func() {
		channel.Close()
		if err := <-ran; err != nil {
			t.Errorf("the process broke the protocol: %v", err)
		}
		<-v.exited
		requests.Release()
		if t.Failed() {
			t.Logf("printed:\n%s", &printed)
		}
	})
	v.expect(ipc.Hello)
	return v
}

// send sends a frame.
func (v *server) send(kind ipc.Kind, id uint64, body []byte) {
	v.t.Helper()
	if err := v.channel.Send(kind, id, body); err != nil {
		v.t.Fatal(err)
	}
}

func (v *server) sendMap(kind ipc.Kind, fields map[string]any) {
	v.t.Helper()
	body, err := msgpack.Marshal(fields)
	if err != nil {
		v.t.Fatal(err)
	}
	v.send(kind, 0, body)
}

// expect waits for a frame of a kind. It skips LOG frames unless LOG is wanted.
func (v *server) expect(kind ipc.Kind) ipc.Frame {
	v.t.Helper()
	for {
		select {
		case f := <-v.frames:
			if f.Kind == kind {
				return f
			}
			if f.Kind != ipc.Log {
				v.t.Fatalf("got %s %d of %d bytes, want %s", f.Kind, f.ID, len(f.Body), kind)
			}
		case <-time.After(patience):
			v.t.Fatalf("%s did not come within %v", kind, patience)
		}
	}
}

// complaint waits for a LOG frame that contains words.
func (v *server) complaint(words string) {
	v.t.Helper()
	for {
		f := v.expect(ipc.Log)
		if strings.Contains(string(f.Body), words) {
			return
		}
	}
}

// initialize starts a model.
func (v *server) initialize(name string, change func(*kserve.ModelConfig)) {
	v.t.Helper()
	config := configOf(name, change)
	text, err := protojson.Marshal(config)
	if err != nil {
		v.t.Fatal(err)
	}
	v.sendMap(ipc.Initialize, map[string]any{
		"backend": "actor", "model": name, "version": 1, "config": string(text), "instance": name + "_0", "kind": "CPU",
		"names": []string{"IN0", "OUT0"}, "inputs": 1, "outputs": 1, "decoupled": config.GetModelTransactionPolicy().GetDecoupled(),
		"log":           map[string]any{"info": true, "warning": true, "error": true, "verbose": 0},
		"default_bytes": 1 << 20, "growth_bytes": 1 << 20, "max_bytes": 32 << 20, "window_responses": 4, "window_bytes": 1 << 20,
	})
	if f := v.expect(ipc.Initialized); strings.Contains(string(f.Body), "refused") {
		v.t.Fatalf("got %q", f.Body)
	}
}

// execute returns the body of EXECUTE with one request. Its input of n bytes lies at an offset of
// *requests* and is lent under a ticket.
func execute(number, ticket, offset uint64, n int, name uint16) []byte {
	body := binary.LittleEndian.AppendUint64(nil, 1)
	d := ipc.Descriptor{Name: name, Type: 2, Region: ipc.InRequests, Offset: offset, Length: uint64(n), Ticket: ticket, Shape: []int64{1, int64(n)}}
	at := len(body)
	body = append(body, make([]byte, ipc.RequestSize+d.Size())...)
	h := ipc.RequestHead{Handle: number << 32, Inputs: 1, Outputs: ipc.AllOutputs}
	d.Put(h.Put(body[at:]))
	return body
}

// executed waits for EXECUTED and returns its body and tickets.
func (v *server) executed(number uint64) (body ipc.ExecutedBody, tickets []uint64) {
	v.t.Helper()
	f := v.expect(ipc.Executed)
	body, err := ipc.ParseExecuted(f.Body)
	if err != nil || f.ID != number {
		v.t.Fatalf("got EXECUTED of %d, error %v, want batch %d", f.ID, err, number)
	}
	for i := range len(body.Tickets) / 8 {
		tickets = append(tickets, ipc.Ticket(body.Tickets, i))
	}
	return body, tickets
}

// TestFramesThatAreNotUnderstoodArePassedOver sends frames that no supervisor sends. The process
// handles each as docs/protocol.md specifies, and keeps serving.
func TestFramesThatAreNotUnderstoodArePassedOver(t *testing.T) {
	v := newServer(t)
	early := execute(1, 11, 0, 5000, 0)
	v.send(ipc.Execute, 1, early)
	v.complaint("came before INITIALIZE")
	if body, _ := v.executed(1); !body.Failed {
		t.Error("EXECUTE before INITIALIZE did not fail")
	}
	v.send(ipc.Name, 2, []byte("early"))
	v.complaint("it came before INITIALIZE")
	v.initialize("copies", nil)

	for name, test := range map[string]struct {
		kind  ipc.Kind
		id    uint64
		body  []byte
		words string
	}{
		"unknown kind":   {ipc.Kind(60), 0, nil, "unexpected kind of frame"},
		"name too far":   {ipc.Name, 7, []byte("far"), "want 2"},
		"odd cancel":     {ipc.Cancel, 0, make([]byte, 7), "want a multiple of 8"},
		"no settings":    {ipc.LogSettings, 0, []byte{0xc1}, "LOG_SETTINGS"},
		"initialize":     {ipc.Initialize, 0, nil, "came after INITIALIZE"},
		"no such answer": {ipc.InferResponse, 9, make([]byte, 3), "INFER_RESPONSE"},
	} {
		v.send(test.kind, test.id, test.body)
		func() {
			defer func() {
				if t.Failed() {
					t.Log(name)
				}
			}()
			v.complaint(test.words)
		}()
	}
	// These refer to nothing known. The process ignores or refuses them.
	v.send(ipc.Allocation, 3, make([]byte, ipc.AllocationSize))
	v.send(ipc.Freed, 3, nil)
	v.send(ipc.Result, 99, nil)
	v.send(ipc.Credit, 5<<32, make([]byte, ipc.CreditSize))
	v.send(ipc.Map, 4, make([]byte, ipc.MapSize))
	v.send(ipc.Unmap, 4, nil)
	for _, want := range []uint32{ipc.MapRefused, ipc.MapEnded} {
		f := v.expect(ipc.Mapped)
		if status, err := ipc.ParseMapped(f.Body); err != nil || status != want || f.ID != 4 {
			t.Errorf("got MAPPED %d with %d, error %v, want %d", f.ID, status, err, want)
		}
	}
	// Malformed batches fail and return the tickets that could be read.
	lies := execute(3, 31, 1<<40, 5000, 0)
	cut := execute(4, 41, 0, 5000, 0)
	cut[8+ipc.RequestSize-24]++ // an id beyond the end of the body
	cut[8+28] = 2               // two inputs
	for number, test := range map[uint64]struct {
		body    []byte
		tickets []uint64
	}{
		2: {[]byte{1}, nil},
		3: {lies, []uint64{31}},
		4: {cut, []uint64{41}},
		5: {execute(5, 51, 0, 5000, 9), []uint64{51}},
		6: {binary.LittleEndian.AppendUint64(nil, 1<<31), nil},
	} {
		v.send(ipc.Execute, number, test.body)
		body, tickets := v.executed(number)
		if !body.Failed || !strings.Contains(string(body.Text), "not understood") || !slices.Equal(tickets, test.tickets) {
			t.Errorf("batch %d: got failed %v, text %q, tickets %v, want tickets %v", number, body.Failed, body.Text, tickets, test.tickets)
		}
	}
	v.send(ipc.Execute, 20, execute(20, 201, 4096, 5000, 0))
	if body, tickets := v.executed(20); body.Failed || !slices.Equal(tickets, []uint64{201}) {
		t.Errorf("got text %q and tickets %v of a good batch", body.Text, tickets)
	}
	v.send(ipc.Finalize, 0, nil)
	v.expect(ipc.Finalized)
	if <-v.exited; v.exit != nil {
		t.Errorf("the process ended with %v, want exit code 0", v.exit)
	}
}

// TestBatchAheadThatWasWithdrawnIsSkipped withdraws a batch ahead while the first batch is
// executed, and expects the plugin to skip it.
func TestBatchAheadThatWasWithdrawnIsSkipped(t *testing.T) {
	v := newServer(t)
	v.initialize("polls", nil)
	v.send(ipc.Execute, 1, execute(1, 11, 0, 5000, 0))
	ahead := func(number uint64) {
		body := execute(number, number*10, 0, 5000, 0)
		if _, _, err := v.channel.Fill(ipc.Execute, number, len(body), func(frame []byte) {
			copy(frame[ipc.HeaderSize:], body)
			ipc.SetAhead(frame)
		}); err != nil {
			t.Fatal(err)
		}
	}
	ahead(2)
	if !v.channel.Withdraw(2) {
		t.Error("a batch behind one that is executed was not withdrawn for certain")
	}
	cancel := binary.LittleEndian.AppendUint64(nil, 1<<32)
	v.send(ipc.Cancel, 0, cancel)
	// One response is the error, the other reports that the request failed.
	if body, tickets := v.executed(1); body.Responses != 2 || !slices.Equal(tickets, []uint64{11}) {
		t.Errorf("got %+v", body)
	}
	if body, _ := v.executed(2); !body.Skipped {
		t.Errorf("got %+v, want a skipped batch", body)
	}
	if f := v.expect(ipc.Released); ipc.Ticket(f.Body, 0) != 20 {
		t.Errorf("got tickets %x, want that of the skipped batch", f.Body)
	}
	ahead(3)
	v.send(ipc.Cancel, 0, binary.LittleEndian.AppendUint64(nil, 3<<32))
	if body, _ := v.executed(3); body.Skipped || body.Responses != 2 {
		t.Errorf("got %+v, want batch 3 executed", body)
	}
	v.send(ipc.Finalize, 0, nil)
	v.expect(ipc.Finalized)
}

// TestCreditThatIsNotUnderstoodEndsTheStream checks that a malformed CREDIT ends a stream with an
// error.
func TestCreditThatIsNotUnderstoodEndsTheStream(t *testing.T) {
	v := newServer(t)
	v.initialize("repeats", func(c *kserve.ModelConfig) {
		c.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	})
	memory, err := v.requests.Bytes(0, 4)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(memory, 1000)
	v.send(ipc.Execute, 1, execute(1, 11, 0, 4, 0))
	for i := range 4 { // the window
		if f := v.expect(ipc.Response); f.ID != 1<<32 {
			t.Fatalf("response %d: got handle %#x", i, f.ID)
		}
	}
	v.send(ipc.Credit, 1<<32, []byte{1, 2, 3})
	var response ipc.ResponseBody
	f := v.expect(ipc.Response)
	if _, err := ipc.ParseResponse(f.Body, &response); err != nil || response.Flags != ipc.FlagPresent|ipc.FlagFinal|ipc.FlagError {
		t.Errorf("got flags %#x, error %v, want the end of the stream with an error", response.Flags, err)
	}
	v.executed(1)
	v.send(ipc.Finalize, 0, nil)
	v.expect(ipc.Finalized)
}

// TestServerThatGoesEndsTheProcess closes the server's side before and after the start of a model,
// and expects that the process is killed.
func TestServerThatGoesEndsTheProcess(t *testing.T) {
	for _, started := range []bool{false, true} {
		v := newServer(t)
		if started {
			v.initialize("identity", nil)
		}
		v.channel.Close()
		<-v.exited
		var exit *exec.ExitError
		if !errors.As(v.exit, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
			t.Errorf("started %v: the process ended with %v, want SIGKILL", started, v.exit)
		}
	}
}
