package amplification

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// overGRPC returns a function that makes one RPC on a new connection.
func overGRPC(address, method string) func([]byte, *attack, *delivery) error {
	return func(body []byte, a *attack, d *delivery) error {
		c, err := dialHTTP2(address, a.unread)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.headers(1, method, d.coding); err != nil {
			return err
		}
		prefix := make([]byte, 5, 5+len(body))
		if d.coding != "" {
			prefix[0] = 1
		}
		binary.BigEndian.PutUint32(prefix[1:], uint32(len(body)))
		status, err := c.data(1, append(prefix, body...), a.pieces, true)
		if err != nil && status == "" {
			return err
		}
		if a.unread {
			_ = c.wait(func() bool { return c.ended || c.pushed }, false)
			d.arrived("unread")
			<-d.held
			return nil
		}
		_ = c.wait(func() bool { return c.ended }, false)
		d.arrived(c.status)
		return nil
	}
}

// messagesOverGRPC returns a function that sends body repeatedly as messages of one stream, up to
// about size bytes. It reads the replies unless the attack leaves them unread.
func messagesOverGRPC(address, method string, size int) func([]byte, *attack, *delivery) error {
	return func(body []byte, a *attack, d *delivery) error {
		c, err := dialHTTP2(address, a.unread)
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.headers(1, method, ""); err != nil {
			return err
		}
		one := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
		block := bytes.Repeat(one, max(1, (64<<10)/len(one)))
		for sent := 0; sent < size; sent += len(block) {
			if _, err := c.data(1, block, 0, false); err != nil {
				break // the stream has ended, or the server has stopped reading
			}
		}
		if !a.unread {
			_, _ = c.data(1, nil, 0, true)
			_ = c.wait(func() bool { return c.ended }, false)
		}
		d.arrived(c.status)
		if a.unread {
			<-d.held
		}
		return nil
	}
}

// halfGRPC returns a function that starts RPCs without sending a message.
func halfGRPC(address, method string, calls int) func([]byte, *attack, *delivery) error {
	return func(_ []byte, _ *attack, d *delivery) error {
		c, err := dialHTTP2(address, true)
		if err != nil {
			return err
		}
		defer c.close()
		for i := range calls {
			if err := c.headers(uint32(2*i+1), method, ""); err != nil {
				return err
			}
		}
		if err := c.ping(); err != nil { // the reply shows that the server has read all RPCs
			return err
		}
		_ = c.wait(func() bool { return c.ponged }, true)
		d.arrived("open")
		<-d.held
		return nil
	}
}

// http2Conn is a client connection that imposes no limits.
type http2Conn struct {
	conn   net.Conn
	unread bool          // does not enlarge its receive windows
	done   chan struct{} // closed when the reader has ended

	writing sync.Mutex // guards framer's writes
	framer  *http2.Framer

	mu      sync.Mutex
	changed *sync.Cond // signals a change of any field below
	err     error
	settled bool // the server's settings have arrived
	windows [2]int64
	initial int64
	most    int
	pushed  bool // data has arrived
	ended   bool // stream 1 has ended
	ponged  bool
	status  string
}

var (
	errEnded   = errors.New("the stream has ended")
	errStalled = errors.New("the server reads no more")
)

// stall is how long a client that does not read waits for the server to resume reading.
const stall = time.Second

func dialHTTP2(address string, unread bool) (*http2Conn, error) {
	conn, err := dial(address, unread)
	if err != nil {
		return nil, err
	}
	c := &http2Conn{conn: conn, unread: unread, framer: http2.NewFramer(conn, conn), done: make(chan struct{}), initial: 65535, most: 16384}
	c.changed = sync.NewCond(&c.mu)
	c.windows[0], c.windows[1] = 65535, 65535
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	window := uint32(1 << 30)
	if unread {
		window = 16
	}
	if _, err = conn.Write([]byte(http2.ClientPreface)); err == nil {
		err = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	}
	if err == nil && !unread {
		err = c.framer.WriteWindowUpdate(0, 1<<30)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	go c.read()
	if err := c.wait(func() bool { return c.settled }, true); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *http2Conn) close() {
	c.conn.Close()
	<-c.done
}

// wait waits until ok returns true or the connection ends. It calls ok with mu held.
func (c *http2Conn) wait(ok func() bool, must bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() {
		if c.err != nil {
			if must {
				return c.err
			}
			return nil
		}
		c.changed.Wait()
	}
	return nil
}

func (c *http2Conn) read() {
	defer close(c.done)
	for {
		f, err := c.framer.ReadFrame()
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		reply := c.take(f)
		c.changed.Broadcast()
		c.mu.Unlock()
		if reply != nil {
			c.writing.Lock()
			_ = reply()
			c.writing.Unlock()
		}
	}
}

// take handles a frame. It returns a function that writes the reply, or nil.
func (c *http2Conn) take(f http2.Frame) (reply func() error) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.windows[1] += int64(n) - c.initial
			c.initial = int64(n)
		}
		if n, ok := f.Value(http2.SettingMaxFrameSize); ok {
			c.most = int(n)
		}
		c.settled = true
		return c.framer.WriteSettingsAck
	case *http2.PingFrame:
		if f.IsAck() {
			c.ponged = true
			return nil
		}
		data := f.Data
		return func() error { return c.framer.WritePing(true, data) }
	case *http2.WindowUpdateFrame:
		if f.StreamID <= 1 {
			c.windows[f.StreamID] += int64(f.Increment)
		}
	case *http2.DataFrame:
		c.pushed = true
		if n := f.Length; n > 0 && !c.unread {
			return func() error {
				return errors.Join(c.framer.WriteWindowUpdate(0, n), c.framer.WriteWindowUpdate(f.StreamID, n))
			}
		}
	case *http2.MetaHeadersFrame:
		for _, field := range f.Fields {
			if field.Name == "grpc-status" && f.StreamID == 1 {
				c.status = "gRPC " + field.Value
			}
		}
		c.ended = c.ended || f.StreamEnded() && f.StreamID == 1
	case *http2.RSTStreamFrame:
		if f.StreamID == 1 {
			c.ended = true
			if c.status == "" {
				c.status = "reset: " + f.ErrCode.String()
			}
		}
	case *http2.GoAwayFrame:
		c.status = "GOAWAY " + f.ErrCode.String() + " " + string(f.DebugData())
	}
	return nil
}

func (c *http2Conn) headers(stream uint32, method, coding string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := []string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "127.0.0.1", "content-type", "application/grpc", "te", "trailers"}
	if coding != "" {
		fields = append(fields, "grpc-encoding", coding)
	}
	for i := 0; i < len(fields); i += 2 {
		if err := e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
}

func (c *http2Conn) ping() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.framer.WritePing(false, [8]byte{1})
}

// data sends body in frames of at most pieces bytes, as fast as the server allows. If the stream
// ends early, status holds its status.
func (c *http2Conn) data(stream uint32, body []byte, pieces int, end bool) (status string, err error) {
	for {
		n, err := c.room(len(body), pieces)
		if err != nil {
			return c.status, err
		}
		last := end && n == len(body)
		c.writing.Lock()
		err = c.framer.WriteData(stream, last, body[:n])
		c.writing.Unlock()
		if body = body[n:]; err != nil || len(body) == 0 {
			return "", err
		}
	}
}

// room waits until the flow-control windows are open and reserves up to n bytes.
func (c *http2Conn) room(n, pieces int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pieces == 0 {
		pieces = c.most
	}
	stalled := false
	if c.unread {
		defer time.AfterFunc(stall, func() {
			c.mu.Lock()
			stalled = true
			c.changed.Broadcast()
			c.mu.Unlock()
		}).Stop()
	}
	for n > 0 && min(c.windows[0], c.windows[1]) <= 0 {
		if stalled {
			return 0, errStalled
		}
		if c.err != nil {
			return 0, fmt.Errorf("%s: %w", c.status, c.err)
		}
		if c.ended {
			return 0, errEnded
		}
		c.changed.Wait()
	}
	if c.ended {
		return 0, errEnded
	}
	n = min(n, pieces, c.most)
	if n > 0 {
		n = int(min(int64(n), c.windows[0], c.windows[1]))
	}
	c.windows[0] -= int64(n)
	c.windows[1] -= int64(n)
	return n, nil
}

// over reports whether the stream or the connection has ended.
func (c *http2Conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended || c.err != nil
}

// said returns the status with which the stream ended.
func (c *http2Conn) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.status, "unread")
}
