package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// Linked runs a backend in this process.
func Linked(open sdk.New) Way { return linked{open} }

type linked struct{ open sdk.New }

func (linked) InProcess() bool { return true }

func (l linked) Open(log zerolog.Logger) (backend.Backend, func(), error) {
	b := &linkedBackend{open: l.open, log: log}
	return b, b.close, nil
}

// linkedBackend opens the author's backend with its first model, as servers do.
type linkedBackend struct {
	open    sdk.New
	log     zerolog.Logger
	backend *engine.Backend
}

// Open implements backend.Backend.
func (b *linkedBackend) Open(env backend.Env) (backend.Model, error) {
	if b.backend == nil {
		opened, err := engine.Open(b.open, engine.Environment{
			Name: env.Config.GetBackend(), Settings: env.Settings, Own: b.log,
			Log: func(slog.Level, string, int, string) {}, // what the author logs is not looked at
		})
		if err != nil {
			return nil, err
		}
		b.backend = opened
	}
	m := b.backend.Model(engine.Version{Name: env.Name, Version: env.Version, Directory: env.Directory, Host: env.Host})
	return &linkedModel{model: m}, nil
}

func (b *linkedBackend) close() {
	if b.backend != nil {
		b.backend.Close()
	}
}

// linkedModel has as many instances as the groups of its config ask for.
type linkedModel struct {
	model     *engine.Model
	instances []*engine.Instance
}

// AutoComplete implements backend.Model.
func (m *linkedModel) AutoComplete(ctx context.Context, config []byte) ([]byte, error) {
	return m.model.Complete(ctx, config)
}

// Start implements backend.Model.
func (m *linkedModel) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	if err := m.model.Start(ctx, config, json); err != nil {
		return err
	}
	for _, place := range places(config) {
		in, err := m.model.Instance(ctx, place)
		if err != nil {
			return errors.Join(err, m.Close(ctx))
		}
		m.instances = append(m.instances, in)
		events.Available(in)
	}
	return nil
}

// Instances implements backend.Model.
func (m *linkedModel) Instances() (all []backend.Instance) {
	for _, in := range m.instances {
		all = append(all, in)
	}
	return all
}

// Close implements backend.Model.
func (m *linkedModel) Close(ctx context.Context) error {
	var errs []error
	for _, in := range m.instances {
		errs = append(errs, in.Close(ctx))
	}
	m.instances = nil
	m.model.Close()
	return errors.Join(errs...)
}

// places lists where the instances of a config are placed.
func places(config *kserve.ModelConfig) (all []engine.Placement) {
	for _, group := range config.GetInstanceGroup() {
		for i := range group.GetCount() {
			all = append(all, engine.Placement{
				Name: fmt.Sprintf("%s_%d", group.GetName(), i), Kind: strings.TrimPrefix(group.GetKind().String(), "KIND_"), HostPolicy: "{}",
			})
		}
	}
	return all
}
