package servertest

import "sync"

// Log is a server.LogControl if S is server.LogSettings.
type Log[S any] struct {
	mu sync.Mutex
	S  S
}

// LogSettings implements server.LogControl.
func (l *Log[S]) LogSettings() S {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.S
}

// ChangeLogSettings implements server.LogControl.
func (l *Log[S]) ChangeLogSettings(change func(*S)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.S)
}
