package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/vmihailenco/msgpack/v5"
)

// stubArgument makes this test binary run as a stub: a small Go program that speaks the protocol
// and misbehaves as its INITIALIZE specifies.
const stubArgument = "--as-stub"

// The descriptors of a stub started by goProgram, in the order of Files.List.
const (
	downFD = 3 + iota
	upFD
	requestsFD
	downBellFD
	upBellFD
	lifelineFD
)

var le = binary.LittleEndian

// goStub is the stub's side of a channel.
type goStub struct {
	down, up         *shm.Region
	downBell, upBell *os.File
	life             uint32
	region           uint32 // number of the latest region to map for outputs
	allocation       uint32 // number of the latest announced allocation
	head, tail       uint64
}

// runGoStub runs a stub from start to end.
func runGoStub() {
	s := &goStub{downBell: os.NewFile(downBellFD, "bell"), upBell: os.NewFile(upBellFD, "bell")}
	var err error
	if s.down, err = shm.Attach(os.NewFile(downFD, "down"), shm.ReadOnly); err != nil {
		panic(err)
	}
	if s.up, err = shm.Attach(os.NewFile(upFD, "up"), shm.ReadWrite); err != nil {
		panic(err)
	}
	s.life = s.down.Uint32(shm.LifeOffset).Load()
	s.sendMap(ipc.Hello, uint64(os.Getpid()), map[string]any{"python": "", "numpy": "", "executable": os.Args[0], "prefix": ""})
	executions, behaviour := 0, ""
	for {
		f, ok := s.receive()
		if !ok {
			os.Exit(0) // the supervisor is gone
		}
		switch f.Kind {
		case ipc.AutoComplete:
			s.sendMap(ipc.Completed, 0, map[string]any{"error": "", "config": `{"name":"completed"}`})
		case ipc.Initialize:
			behaviour = s.initialize(f)
		case ipc.ReadyQuestion:
			s.sendMap(ipc.ReadyAnswer, f.ID, map[string]any{"ready": behaviour != "unready", "error": ""})
		case ipc.Map: // only reports that it has mapped it
			if f.Body[16] == 1 {
				s.region = uint32(f.ID)
			}
			s.send(ipc.Mapped, f.ID, make([]byte, ipc.MappedSize))
		case ipc.Allocation:
			s.allocation = uint32(f.ID)
		case ipc.Execute:
			executions++
			s.execute(f, behaviour, executions)
		case ipc.Finalize:
			fmt.Println("finalized")
			s.sendMap(ipc.Finalized, 0, map[string]any{"error": ""})
			os.Exit(0)
		}
	}
}

// initialize handles INITIALIZE. It makes a host call before it replies.
func (s *goStub) initialize(f ipc.Frame) (behaviour string) {
	var body struct {
		Behaviour string `msgpack:"behaviour"`
	}
	if err := msgpack.Unmarshal(f.Body, &body); err != nil {
		panic(err)
	}
	if body.Behaviour == "refuses" {
		s.sendMap(ipc.Initialized, 0, map[string]any{"error": "not today", "is_ready": false})
		return body.Behaviour
	}
	if body.Behaviour == deviceLie+"early" {
		s.lend(1)
	}
	fmt.Println("initialized", os.Args[2])
	s.sendMap(ipc.Log, 0, map[string]any{"level": 1, "file": "stub.go", "line": 7, "message": "a word of the stub"})
	s.sendMap(ipc.Call, 1, map[string]any{"operation": "ready", "model": "other", "version": ""})
	for answer, ok := s.receive(); ok && answer.Kind != ipc.Result; answer, ok = s.receive() {
	}
	s.sendMap(ipc.Initialized, 0, map[string]any{"error": "", "is_ready": true})
	return body.Behaviour
}

// execute responds to each request of a batch with four bytes, including the number of executions
// and of the batch's requests.
func (s *goStub) execute(f ipc.Frame, behaviour string, executions int) {
	requests := le.Uint32(f.Body)
	number := f.ID
	switch {
	case behaviour == "dies" && executions == 2:
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(3)
	case behaviour == "lies" && executions == 2:
		number++
	}
	body := le.AppendUint32(nil, requests)
	body = append(body, make([]byte, 28)...)
	var at []int // of the descriptors
	for i := range requests {
		body = le.AppendUint64(body, number<<32|uint64(i))
		body = le.AppendUint32(body, ipc.FlagPresent|ipc.FlagFinal)
		body = le.AppendUint16(body, 1)                // outputs
		body = append(body, make([]byte, 32-8-4-2)...) // no error, no parameters
		at = append(at, len(body))
		body = append(body, make([]byte, ipc.DescriptorSize+2*8)...)
	}
	for i := range requests {
		body = append(body, make([]byte, ipc.AlignInline(len(body))-len(body))...)
		d := ipc.Descriptor{
			Name: 1, Type: uint8(infer.Uint8), Region: ipc.InFrame, Offset: uint64(ipc.HeaderSize + len(body)), Length: 4, Shape: []int64{1, 4},
		}
		if behaviour == "claims" && s.region != 0 {
			// It has written nothing, and names a wrong range every other time.
			d.Region, d.Mapping, d.Offset = ipc.InClient, s.region, uint64(1-executions%2)
			d.Length, d.Shape = regionSize, []int64{1, regionSize}
		}
		if lie, ok := strings.CutPrefix(behaviour, deviceLie); ok {
			s.onDevice(lie, executions, &d)
		}
		if lie, ok := strings.CutPrefix(behaviour, placeLie); ok {
			s.inPlace(lie, &d)
		}
		d.Put(body[at[i]:])
		body = append(body, byte(executions), byte(requests), 0, 0)
	}
	s.send(ipc.Executed, number, body)
}

func (s *goStub) sendMap(kind ipc.Kind, id uint64, fields map[string]any) {
	body, err := msgpack.Marshal(fields)
	if err != nil {
		panic(err)
	}
	s.send(kind, id, body)
}

// send publishes a frame. All frames of a life fit into the ring.
func (s *goStub) send(kind ipc.Kind, id uint64, body []byte) {
	ring := content(s.up)
	size := ipc.HeaderSize + len(body)
	at := s.tail % shm.RingSize
	le.PutUint32(ring[at:], uint32(size))
	le.PutUint16(ring[at+4:], uint16(kind))
	le.PutUint16(ring[at+6:], 0)
	le.PutUint32(ring[at+8:], s.life)
	le.PutUint32(ring[at+12:], 0)
	le.PutUint64(ring[at+16:], id)
	copy(ring[at+ipc.HeaderSize:], body)
	s.tail += uint64(ipc.Align8(size))
	s.up.Uint64(shm.PostedOffset).Store(uint64(backend.Now()))
	s.up.Uint64(shm.TailOffset).Swap(s.tail)
	if s.down.Uint32(shm.SleepOffset).Load()&1 == 1 {
		_, _ = s.upBell.Write([]byte{1})
	}
}

// receive returns the next frame. It sleeps on the bell as the protocol requires, and returns false
// if the supervisor is gone.
func (s *goStub) receive() (ipc.Frame, bool) {
	tail, sleep := s.down.Uint64(shm.TailOffset), s.up.Uint32(shm.SleepOffset)
	for tail.Load() == s.head {
		sleep.Swap(sleep.Load() | 1)
		gone := false
		if tail.Load() == s.head {
			n, err := s.downBell.Read(make([]byte, 64))
			gone = n == 0 || err != nil
		}
		sleep.Add(1)
		if gone {
			return ipc.Frame{}, false
		}
	}
	ring := content(s.down)
	at := s.head % shm.RingSize
	size := le.Uint32(ring[at:])
	f := ipc.Frame{Kind: ipc.Kind(le.Uint16(ring[at+4:])), ID: le.Uint64(ring[at+16:])}
	f.Body = append(f.Body, ring[at+ipc.HeaderSize:at+uint64(size)]...)
	s.head += uint64(ipc.Align8(int(size)))
	s.up.Uint64(shm.HeadOffset).Store(s.head)
	return f, true
}

// content returns the bytes of a channel file's ring.
func content(file *shm.Region) []byte {
	ring, err := file.Bytes(shm.RingOffset, shm.RingSize)
	if err != nil {
		panic(err)
	}
	return ring
}
