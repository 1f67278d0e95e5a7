// Package backendstest has helpers for the tests of the backends.
package backendstest

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// Config is a model's config, in the form of config.pbtxt, and the error that NewModel returns for
// it, or "".
type Config = struct{ Name, Config, Want string }

// CheckConfigs loads the configs with a backend and checks the errors.
func CheckConfigs(t *testing.T, initialize sdk.New, configs []Config) {
	t.Helper()
	for _, test := range configs {
		t.Run(test.Name, func(t *testing.T) {
			h := host{config: &kserve.ModelConfig{}}
			if err := prototext.Unmarshal([]byte(test.Config), h.config); err != nil {
				t.Fatal(err)
			}
			b, err := initialize(&sdk.BackendEnv{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.NewModel(sdk.NewModelEnv(sdk.ModelEnv{Log: slog.New(slog.DiscardHandler)}, h))
			if got := text(err); got != test.Want {
				t.Errorf("got %q, want %q", got, test.Want)
			}
		})
	}
}

// host serves a model's config.
type host struct {
	sdk.ModelHost
	config *kserve.ModelConfig
}

// Config implements sdk.ModelHost.
func (h host) Config() *kserve.ModelConfig { return h.config }

// text returns the text of an error, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
