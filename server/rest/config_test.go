package rest_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

func TestValidateNamesTheField(t *testing.T) {
	for _, tt := range []struct {
		cfg  rest.Config
		want string
	}{
		{rest.Config{}, ""},
		{rest.Config{MaxInputBytes: -1}, "MaxInputBytes is -1, want 1 to 9223372036854775807, or 0 for the default"},
		{rest.Config{Config: http1.Config{IdleTimeout: -time.Nanosecond}}, "IdleTimeout is -1ns, want 1ns to 8784h0m0s, or 0 for the default"},
		{rest.Config{Port: 65536}, "Port is 65536, want 0 to 65535"},
		{rest.Config{Restricted: []server.Restriction{{Groups: []string{"x"}}}}, "Restricted: unknown restricted api 'x' "},
		{rest.Config{ForwardPattern: "("}, "ForwardPattern: "},
	} {
		err := tt.cfg.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%+v: got %v, want %q", tt.cfg, err, tt.want)
		}
		if _, made := rest.New(tt.cfg, server.Parts{Core: servertest.NewCore(), Logging: &fakeLog{}}, zerolog.Nop()); (made == nil) != (err == nil) {
			t.Errorf("%+v: New: got %v, want what Validate says", tt.cfg, made)
		}
	}
	if _, err := rest.New(rest.Config{}, server.Parts{}, zerolog.Nop()); err == nil {
		t.Error("New without a Core: got no error")
	}
}

func TestListenFailsOnAPortInUse(t *testing.T) {
	s := StartHTTP(t, rest.Config{ReusePort: true}, nil)
	_, port, _ := strings.Cut(s.Addr, ":")
	cfg := rest.Config{Address: "127.0.0.1"}
	for _, c := range port {
		cfg.Port = cfg.Port*10 + int(c-'0')
	}
	parts := server.Parts{Core: servertest.NewCore(), Logging: &fakeLog{}}
	h, err := rest.New(cfg, parts, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: got %v, want EADDRINUSE", err)
	}
	cfg.ReusePort = true
	if h, err = rest.New(cfg, parts, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	if err := h.Listen(); err != nil {
		t.Errorf("a shared port: got %v, want nil", err)
	} else {
		_ = h.CloseSocket()
	}
}
