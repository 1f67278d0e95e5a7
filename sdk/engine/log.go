package engine

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
)

func stack() []byte { return debug.Stack() }

// logger returns the log of a backend, its models and its instances.
func (b *Backend) logger() *slog.Logger {
	return slog.New(&logHandler{log: b.env.Log, enabled: b.env.Enabled})
}

// logHandler writes records in the form of the server's log: a message and the position of its
// code. Attributes follow the message as key=value.
type logHandler struct {
	log     func(slog.Level, string, int, string)
	enabled func(slog.Level) bool
	group   string // of attributes from now on, with a dot
	fields  string // that each record has, with a space before each
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return h.log != nil && (h.enabled == nil || h.enabled(level))
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	text.WriteString(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&text, h.group, a)
		return true
	})
	file, line := "", 0
	if r.PC != 0 {
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		file, line = frame.File, frame.Line
		file = file[strings.LastIndexByte(file, '/')+1:]
	}
	h.log(r.Level, file, line, text.String())
	return nil
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var text strings.Builder
	text.WriteString(h.fields)
	for _, a := range attrs {
		appendAttr(&text, h.group, a)
	}
	next := *h
	next.fields = text.String()
	return &next
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group += name + "."
	return &next
}

func appendAttr(to *strings.Builder, group string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range value.Group() {
			appendAttr(to, group, inner)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	to.WriteByte(' ')
	to.WriteString(group)
	to.WriteString(a.Key)
	to.WriteByte('=')
	to.WriteString(value.String())
}
