package ipc

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

// Ask makes the peer ask for wanted bytes in total, and returns its grant.
func (p *peer) Ask(number, wanted uint64) uint64 {
	p.t.Helper()
	Word(p.Up, shm.GrantOffset).Store(wanted)
	Word(p.Up, shm.AskedOffset).Store(number)
	_, _ = unix.Write(int(p.Files.UpBell.Fd()), []byte{1})
	testkit.Eventually(p.t, time.Minute, func() bool { return Word(p.Down, shm.AskedOffset).Load() == number })
	return Word(p.Down, shm.GrantOffset).Load()
}
