package amplification

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clientArgument makes this test binary run as the client process, which generates the attacks and
// sends those that the test requests.
const clientArgument = "--as-client"

// patience limits the lifetime of each client connection.
const patience = 30 * time.Second

// target holds the server's addresses and its OpenAPI document.
type target struct {
	Addresses map[string]string // by front end
	Document  json.RawMessage
	Token     string // of the page's forms
}

// volley is a number of copies to send at once, with their approximate size before compression.
type volley struct{ Copies, Size int }

// attack is one kind of message for one entry point.
type attack struct {
	Entry   string // "gRPC ModelInfer", "REST POST /v2/logging"
	Kind    string // the position in the message and the form of the value there
	Volleys []volley

	body   func(size int) []byte    // nil: no body, or each is set
	each   func(i, size int) []byte // returns the body of the i-th copy, if copies differ
	coded  bool                     // the copies alternate between the codings
	pieces int                      // bytes per frame or chunk; 0: the maximum
	unread bool                     // the reply stays in the socket
	send   func(body []byte, a *attack, d *delivery) error
}

// delivery is one copy of a volley.
type delivery struct {
	coding string // gzip, deflate or none
	arrive sync.Once
	came   func(status string)
	held   <-chan struct{} // closed when connections may be closed
}

// arrived records that the server has replied or is holding the request. Only the first call
// counts.
func (d *delivery) arrived(status string) { d.arrive.Do(func() { d.came(status) }) }

// outcome counts the replies to a volley by status.
type outcome struct {
	Sent     int // bytes of all copies on the wire
	Statuses map[string]int
}

// taken reports whether the server accepted at least one copy, or rejected it for a reason other
// than its content, its size or a lack of memory.
func (o *outcome) taken() bool {
	for status := range o.Statuses {
		if status != "unread" && status != "gRPC 8" && !strings.HasPrefix(status, "413") && !strings.HasPrefix(status, "400") && !strings.HasPrefix(status, "503") {
			return true
		}
	}
	return false
}

// runClient executes the commands that it reads from stdin. A line with two numbers selects an
// attack and one of its volleys. An empty line closes the held connections.
func runClient() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	var to target
	if !in.Scan() {
		return
	}
	if err := json.Unmarshal(in.Bytes(), &to); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	attacks := attacksOn(&to)
	say(attacks)
	for in.Scan() {
		var which, volley int
		if _, err := fmt.Sscan(in.Text(), &which, &volley); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			os.Exit(1)
		}
		a := &attacks[which]
		held := make(chan struct{})
		result, wait := a.launch(a.Volleys[volley], held)
		say(result)
		in.Scan() // the test has measured the held connections
		close(held)
		wait()
		say(struct{}{})
	}
}

func say(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// launch sends all copies and returns when all have arrived. wait returns when all have ended.
func (a *attack) launch(v volley, held <-chan struct{}) (o outcome, wait func()) {
	o = outcome{Statuses: map[string]int{}}
	var copies, arrivals sync.WaitGroup
	var mu sync.Mutex
	arrivals.Add(v.Copies)
	made := map[string][]byte{} // by coding
	for i := range v.Copies {
		d := &delivery{held: held, came: func(status string) {
			mu.Lock()
			o.Statuses[status]++
			mu.Unlock()
			arrivals.Done()
		}}
		if a.coded {
			d.coding = codings[i%len(codings)]
		}
		body, again := made[d.coding]
		if !again || a.each != nil {
			body = compress(d.coding, a.make(i, v.Size))
			made[d.coding] = body
		}
		o.Sent += len(body)
		copies.Go(func() {
			err := a.send(body, a, d)
			d.arrived(fmt.Sprint(err))
		})
	}
	arrivals.Wait()
	return o, copies.Wait
}

// make returns the body of the i-th copy.
func (a *attack) make(i, size int) []byte {
	switch {
	case a.each != nil:
		return a.each(i, size)
	case a.body != nil:
		return a.body(size)
	}
	return nil
}

func compress(coding string, body []byte) []byte {
	if body == nil {
		return nil
	}
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	default:
		return body
	}
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

// dial opens a connection. An unread connection has the smallest receive buffer that the kernel
// allows.
func dial(address string, unread bool) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if unread {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		}
	}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}
