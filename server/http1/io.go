package http1

import (
	"bytes"
	"os"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/server/connections"
)

// fill reads once from the socket, behind the content of the buffer. There must be room.
func (c *conn) fill() error {
	n, err := c.raw.Read(c.buf[c.end:])
	c.end += n
	if n > 0 {
		return nil
	}
	return err
}

// fillHead is fill while the connection waits for a head.
func (c *conn) fillHead() error {
	if !c.awaits() {
		return errClosing
	}
	err := c.fill()
	if !c.reads() {
		return errClosing
	}
	return err
}

// read reads a part of a body into p, which is not empty: from the buffer or else from the socket,
// without a copy if p is large.
func (c *conn) read(p []byte) (int, error) {
	if c.start == c.end {
		if err := c.pace(); err != nil {
			return 0, err
		}
		if len(p) >= directRead {
			n, err := c.raw.Read(p)
			c.bodyRead += int64(n)
			if n > 0 {
				err = nil
			}
			return n, err
		}
		c.start, c.end = 0, 0
		if err := c.fill(); err != nil {
			return 0, err
		}
		c.bodyRead += int64(c.end)
	}
	n := copy(p, c.buf[c.start:c.end])
	c.start += n
	return n, nil
}

// readLine returns the next line of a body without its end. It is valid until
// the next read.
func (c *conn) readLine(limit int) ([]byte, error) {
	for at := 0; ; {
		if n := bytes.IndexByte(c.buf[c.start+at:c.end], '\n'); n >= 0 {
			line := c.buf[c.start : c.start+at+n]
			c.start += at + n + 1
			if len(line) > limit {
				return nil, errChunk
			}
			if len(line) == 0 || line[len(line)-1] != '\r' {
				return nil, errBareLF
			}
			return line[:len(line)-1], nil
		}
		at = c.end - c.start
		if at > limit || at == len(c.buf) {
			return nil, errChunk
		}
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
		if err := c.pace(); err != nil {
			return nil, err
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
		c.bodyRead += int64(c.end - at)
	}
}

// pace extends the read deadline as long as a body keeps up with the least rate. Its first paceStep
// comes under the deadline of the head.
func (c *conn) pace() error {
	cfg := &c.server.cfg
	if !c.timed {
		c.timed = true
		return c.setReadDeadline(cfg.HeaderTimeout)
	}
	if c.bodyRead < min(paceStep, cfg.BodyBytesPerSecond) {
		return nil
	}
	now := time.Now()
	if c.bodyBegan.IsZero() {
		c.bodyBegan = now
	} else if c.readDeadline.Sub(now) > cfg.BodyGrace/2 {
		return nil
	}
	earned := time.Duration(float64(c.bodyRead) / float64(cfg.BodyBytesPerSecond) * float64(time.Second))
	c.readDeadline = c.bodyBegan.Add(cfg.BodyGrace + earned)
	return c.raw.SetReadDeadline(c.readDeadline)
}

// setReadDeadline sets the read deadline d from now. A deadline that is at most an eighth earlier
// stays.
func (c *conn) setReadDeadline(d time.Duration) error {
	now := time.Now()
	if left := c.readDeadline.Sub(now); left <= d && left >= d-d/8 {
		return nil
	}
	c.readDeadline = now.Add(d)
	return c.raw.SetReadDeadline(c.readDeadline)
}

// setWriteDeadline gives the client a full write timeout for the next step.
func (c *conn) setWriteDeadline() {
	now := time.Now()
	if timeout := c.server.cfg.WriteTimeout; c.writeDeadline.Sub(now) < timeout/2 {
		c.writeDeadline = now.Add(timeout)
		_ = c.raw.SetWriteDeadline(c.writeDeadline)
	}
}

// write sends b. A client that does not read it counts as disconnected.
func (c *conn) write(b []byte) (err error) {
	c.setWriteDeadline()
	if c.wait.socket == nil {
		_, err = c.raw.Write(b)
	} else {
		c.unsent, c.unsentErr = b, nil
		if err = c.wait.socket.Write(c.wait.write); err == nil {
			err = c.unsentErr
		}
		c.unsent = nil
	}
	if err != nil {
		c.reply.close, c.reply.gone = true, true
		return ErrClientGone
	}
	return nil
}

// tryWrite writes until the socket's buffer is full; false waits until it has room again.
func (c *conn) tryWrite(socket uintptr) bool {
	for len(c.unsent) > 0 {
		n, err := connections.WriteSocket(socket, c.unsent)
		switch {
		case err == syscall.EAGAIN:
			return false
		case err != nil:
			c.unsentErr = os.NewSyscallError("write", err)
			return true
		}
		c.unsent = c.unsent[n:]
	}
	return true
}

// writeVector sends the parts without copying them, in as few system calls as the deadlines allow.
func (c *conn) writeVector() error {
	defer clear(c.vector)
	for i, from := 0, 0; i < len(c.vector); {
		step := c.step[:0]
		for room := writeStep; room > 0 && i < len(c.vector); {
			part := c.vector[i][from:]
			if len(part) > room {
				part = part[:room]
				from += room
			} else {
				i, from = i+1, 0
			}
			room -= len(part)
			step = append(step, part) // bound: the parts of a reply
		}
		c.setWriteDeadline()
		c.step = step
		var err error
		if c.secure != nil {
			err = c.secure.writeParts(step)
		} else {
			_, err = c.step.WriteTo(c.raw) // which advances c.step
			c.step = step
		}
		clear(step) // the blobs are not kept
		if err != nil {
			c.reply.close, c.reply.gone = true, true
			return ErrClientGone
		}
	}
	return nil
}

// sendContinue tells a client that waits for it to send its body.
func (c *conn) sendContinue() error {
	if c.start < c.end {
		return nil // the client has not waited
	}
	c.setWriteDeadline()
	_, err := c.raw.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	return err
}

// beginWatch cancels the request's context if the client disconnects before endWatch. The body has
// been read.
func (c *conn) beginWatch() {
	if c.req.body.ended() && (c.secure == nil || c.start == c.end) {
		c.watched = true
		c.watch.start()
	}
}

func (c *conn) endWatch() {
	if !c.watched {
		return
	}
	c.watched = false
	if c.watch.stop() {
		c.readDeadline = time.Time{} // the next read sets one
	}
	if b, ok := c.watch.takeEarly(); ok {
		c.buf[0] = b
		c.start, c.end = 0, 1
	}
}
