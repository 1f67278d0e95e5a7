package testkit

import (
	"strings"
	"sync"
)

// Buffer is a bytes.Buffer for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often text has been written so far.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }
