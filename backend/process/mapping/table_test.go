package mapping

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

const page = 4096

// far is the stub's side. It records the frames sent to the stub.
type far struct {
	t      *testing.T
	table  *Table
	socket *os.File

	mu     sync.Mutex
	frames []ipc.Kind
	broken error // error of the ring
}

func (f *far) send(kind ipc.Kind, _ uint64, _ []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.frames = append(f.frames, kind)
	}
	return f.broken
}

func (f *far) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.frames)
}

// answer handles a MAPPED frame of the stub.
func (f *far) answer(number uint64, status uint32) error {
	body := binary.LittleEndian.AppendUint64(nil, uint64(status))
	return f.table.Receive(ipc.Frame{Kind: ipc.Mapped, ID: number, Body: body})
}

func newFar(t *testing.T) *far {
	near, socket, err := Socket()
	if err != nil {
		t.Fatal(err)
	}
	f := &far{t: t, socket: socket}
	f.table = New(Config{Socket: near, Send: f.send})
	t.Cleanup(func() {
		f.table.Close()
		_ = socket.Close()
	})
	return f
}

// region returns a file of two pages. The second page is a client's region.
func region(t *testing.T, mode os.FileMode) (*shm.Shared, *os.File) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "region")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := errors.Join(file.Truncate(2*page), file.Chmod(mode)); err != nil {
		t.Fatal(err)
	}
	return shm.NewShared(int(file.Fd()), page, page), file
}

// TestOfRequestToEnd follows a region from the first request that needs it to its end.
func TestOfRequestToEnd(t *testing.T) {
	f := newFar(t)
	r, _ := region(t, 0o600)
	for range 2 {
		if f.table.Want(r, false) || f.sent() != 1 {
			t.Fatalf("%d frames were sent before the stub has answered, want one", f.sent())
		}
	}
	data, rights := make([]byte, 16), make([]byte, 64)
	n, m, _, _, err := unix.Recvmsg(int(f.socket.Fd()), data, rights, unix.MSG_DONTWAIT)
	if err != nil || n != 4 || binary.LittleEndian.Uint32(data) != 1 {
		t.Fatalf("the socket has %x, error %v: want the number 1", data[:n], err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		t.Fatalf("got %d messages, error %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("got %d descriptors, error %v", len(fds), err)
	}
	if _, err := unix.Pwrite(fds[0], []byte{1}, 0); err == nil {
		t.Error("the stub can write into the client's file by its descriptor")
	}
	_ = unix.Close(fds[0])
	if _, ok := f.table.Number(r, false); ok {
		t.Error("the region has a number before the stub has answered")
	}
	if err := f.answer(1, ipc.MapDone); err != nil {
		t.Fatal(err)
	}
	if number, ok := f.table.Number(r, false); !ok || number != 1 || !f.table.Want(r, false) {
		t.Errorf("got number %d, %v, want 1", number, ok)
	}
	r.End()
	if _, ok := f.table.Number(r, false); ok || f.sent() != 2 || f.frames[1] != ipc.Unmap {
		t.Errorf("frames %v were sent, and the region has a number: %v; want an UNMAP", f.frames, ok)
	}
	if err := f.answer(1, ipc.MapEnded); err != nil || f.table.Count() != 0 {
		t.Errorf("%d regions are left, error %v", f.table.Count(), err)
	}
}

// TestRefused checks that a stub is not asked again to map a region that it cannot map, and is
// still notified of the region's end.
func TestRefused(t *testing.T) {
	f := newFar(t)
	r, _ := region(t, 0o600)
	f.table.Want(r, false)
	if err := f.answer(1, ipc.MapRefused); err != nil || f.table.Want(r, false) || f.sent() != 1 {
		t.Errorf("error %v, %d frames, want one", err, f.sent())
	}
	r.End()
	if err := f.answer(1, ipc.MapEnded); err != nil || f.table.Count() != 0 {
		t.Errorf("%d regions are left, error %v", f.table.Count(), err)
	}
}

// TestEndBeforeTheAnswer ends a region before the stub has replied to MAP.
func TestEndBeforeTheAnswer(t *testing.T) {
	f := newFar(t)
	r, _ := region(t, 0o600)
	f.table.Want(r, false)
	r.End()
	if err := errors.Join(f.answer(1, ipc.MapDone), f.answer(1, ipc.MapEnded)); err != nil || f.table.Count() != 0 {
		t.Errorf("%d regions are left, error %v", f.table.Count(), err)
	}
}

func TestTableRejectsInvalidMessages(t *testing.T) {
	for name, say := range map[string]func(f *far) error{
		"of a region that it was not asked for": func(f *far) error { return f.answer(2, ipc.MapDone) },
		"a number that is too large":            func(f *far) error { return f.answer(1<<32|1, ipc.MapDone) },
		"an end before MAP is answered":         func(f *far) error { return f.answer(1, ipc.MapEnded) },
		"a second answer":                       func(f *far) error { return errors.Join(f.answer(1, ipc.MapDone), f.answer(1, ipc.MapRefused)) },
		"an end without UNMAP":                  func(f *far) error { return errors.Join(f.answer(1, ipc.MapDone), f.answer(1, ipc.MapEnded)) },
		"an unknown status":                     func(f *far) error { return f.answer(1, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			r, _ := region(t, 0o600)
			f.table.Want(r, false)
			var broke *ipc.ProtocolError
			if err := say(f); !errors.As(err, &broke) {
				t.Errorf("got error %v, want a ProtocolError", err)
			}
		})
	}
}

// TestOthersFiles checks that a file that others can write to is never passed to a stub, even if
// its mode changed after the registration.
func TestOthersFiles(t *testing.T) {
	for _, mode := range []os.FileMode{0o602, 0o620, 0o666} {
		if r, _ := region(t, mode); r != nil {
			t.Errorf("a file of mode %o may be mapped", mode)
		}
	}
	f := newFar(t)
	r, file := region(t, 0o644)
	if err := file.Chmod(0o666); err != nil {
		t.Fatal(err)
	}
	if f.table.Want(r, false) || f.sent() != 0 || f.table.Count() != 0 {
		t.Errorf("%d frames were sent, want none", f.sent())
	}
}

// TestFailuresLeaveNothing checks that a full socket and a closed ring leave nothing behind, and
// that a failed mapping is tried again.
func TestFailuresLeaveNothing(t *testing.T) {
	f := newFar(t)
	f.broken = ipc.ErrClosed
	open := testkit.Descriptors(t)
	r, _ := region(t, 0o600)
	files := testkit.Descriptors(t) - open
	full := false
	for range 10_000 {
		before := f.table.last
		if f.table.Want(r, false) {
			t.Fatal("the region is mapped")
		}
		full = full || f.table.last > before
		if f.table.Count() != 0 {
			t.Fatalf("%d regions are kept, want none", f.table.Count())
		}
	}
	if n := testkit.Descriptors(t) - open; n != files || !full {
		t.Errorf("%d descriptors more are open, want %d", n, files)
	}
}

// TestMostRegions checks that no more than the maximum number of regions is mapped.
func TestMostRegions(t *testing.T) {
	f := newFar(t)
	data, rights := make([]byte, 16), make([]byte, 64)
	for range most + 5 {
		r, _ := region(t, 0o600)
		f.table.Want(r, false)
		if _, m, _, _, err := unix.Recvmsg(int(f.socket.Fd()), data, rights, unix.MSG_DONTWAIT); err == nil {
			if messages, err := unix.ParseSocketControlMessage(rights[:m]); err == nil {
				fds, _ := unix.ParseUnixRights(&messages[0])
				_ = unix.Close(fds[0])
			}
		}
	}
	if f.table.Count() != most || f.sent() != most {
		t.Errorf("the stub knows %d regions of %d frames, want %d", f.table.Count(), f.sent(), most)
	}
}

// TestDistrust checks that a region is distrusted once its file is too short.
func TestDistrust(t *testing.T) {
	f := newFar(t)
	whole, _ := region(t, 0o600)
	short, file := region(t, 0o600)
	f.table.Want(whole, false)
	f.table.Want(short, false)
	if err := errors.Join(f.answer(1, ipc.MapDone), f.answer(2, ipc.MapDone)); err != nil {
		t.Fatal(err)
	}
	if f.table.Distrust() {
		t.Error("a region is distrusted whose file is whole")
	}
	if err := file.Truncate(2*page - 1); err != nil {
		t.Fatal(err)
	}
	if !f.table.Distrust() || !whole.Trusted() || short.Trusted() {
		t.Errorf("the whole region is trusted: %v, the short one: %v; want the first alone", whole.Trusted(), short.Trusted())
	}
}

// TestStormOfEnds requests, maps and ends regions while the life ends.
func TestStormOfEnds(t *testing.T) {
	f := newFar(t)
	var wait sync.WaitGroup
	for range 8 {
		r, _ := region(t, 0o600)
		wait.Go(func() {
			f.table.Want(r, false)
			f.table.Number(r, false)
			r.End()
		})
	}
	wait.Go(func() {
		for n := range uint64(9) {
			_ = f.answer(n, ipc.MapDone)
		}
		f.table.Close()
	})
	wait.Wait()
	f.table.Close()
	if f.table.Count() != 0 {
		t.Errorf("%d regions are left", f.table.Count())
	}
}

// TestWritable checks that for outputs, the stub gets a writable descriptor, and the region a
// number other than for inputs. Both mappings end with the region.
func TestWritable(t *testing.T) {
	f := newFar(t)
	r, _ := region(t, 0o600)
	for i, writable := range []bool{false, true} {
		f.table.Want(r, writable)
		data, rights := make([]byte, 16), make([]byte, 64)
		n, m, _, _, err := unix.Recvmsg(int(f.socket.Fd()), data, rights, unix.MSG_DONTWAIT)
		if err != nil || n != 4 || binary.LittleEndian.Uint32(data) != uint32(i+1) {
			t.Fatalf("the socket has %x, error %v: want the number %d", data[:n], err, i+1)
		}
		messages, err := unix.ParseSocketControlMessage(rights[:m])
		if err != nil || len(messages) != 1 {
			t.Fatalf("got %d messages, error %v", len(messages), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatalf("got %d descriptors, error %v", len(fds), err)
		}
		if _, err := unix.Pwrite(fds[0], []byte{1}, 0); (err == nil) != writable {
			t.Errorf("writable %v: writing by the stub's descriptor gives %v", writable, err)
		}
		_ = unix.Close(fds[0])
	}
	if err := f.answer(2, ipc.MapDone); err != nil {
		t.Fatal(err)
	}
	_, forInputs := f.table.Number(r, false)
	if number, ok := f.table.Number(r, true); forInputs || !ok || number != 2 {
		t.Errorf("got number %d, %v, and one for inputs: %v; want 2 and none", number, ok, forInputs)
	}
	r.End()
	if err := errors.Join(f.answer(1, ipc.MapDone), f.answer(1, ipc.MapEnded), f.answer(2, ipc.MapEnded)); err != nil || f.table.Count() != 0 || f.sent() != 4 {
		t.Errorf("%d mappings are left after %d frames, error %v; want none after 4", f.table.Count(), f.sent(), err)
	}
}
