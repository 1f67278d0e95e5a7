package ipc

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

// Ask requests wanted bytes in total for the peer and returns its grant.
func (p *peer) Ask(number, wanted uint64) uint64 {
	p.t.Helper()
	p.UpWord(shm.GrantOffset).Store(wanted)
	p.UpWord(shm.AskedOffset).Store(number)
	_, _ = unix.Write(int(p.Files.UpBell.Fd()), []byte{1})
	testkit.Eventually(p.t, time.Minute, func() bool { return p.DownWord(shm.AskedOffset).Load() == number })
	return p.DownWord(shm.GrantOffset).Load()
}
