package process_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
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
)

var le = binary.LittleEndian

// goStub is the stub's side of a channel. Its frames are whole; their content may be a lie.
type goStub struct {
	peer       *peer.Peer
	box        *peer.Box
	region     uint32 // number of the latest region to map for outputs
	allocation uint32 // number of the latest announced allocation
}

// runGoStub runs a stub from start to end.
func runGoStub() {
	s := &goStub{box: peer.NewBox()}
	var err error
	if s.peer, err = peer.Attach(peer.Files{
		Down: os.NewFile(downFD, "down"), Up: os.NewFile(upFD, "up"), Requests: os.NewFile(requestsFD, "requests"),
		DownBell: os.NewFile(downBellFD, "bell"), UpBell: os.NewFile(upBellFD, "bell"),
	}, func(peer.Message) *peer.Box { return s.box }); err != nil {
		panic(err)
	}
	s.sendMap(ipc.Hello, uint64(os.Getpid()), map[string]any{"python": "", "numpy": "", "executable": os.Args[0], "prefix": ""})
	executions, behaviour := 0, ""
	for {
		f := s.receive()
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
	for s.receive().Kind != ipc.Result {
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
	case behaviour == "lies" && executions == 2, behaviour == "lies at once":
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

func (s *goStub) send(kind ipc.Kind, id uint64, body []byte) {
	if err := s.peer.Send(kind, id, body); err != nil {
		os.Exit(0) // the supervisor is gone
	}
}

func (s *goStub) receive() ipc.Frame {
	m, err := s.peer.Receive(s.box, nil, 0)
	if err != nil {
		os.Exit(0) // the supervisor is gone
	}
	return m.Frame
}
