package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/panics"
)

// session is one life of the backend, with its model loaded.
type session struct {
	journal   *journal
	backend   string
	close     func()
	model     backend.Model
	instances []backend.Instance
	config    *kserve.ModelConfig // as the backend has completed it
	limit     time.Duration
	lives     lives
}

// open starts the backend and loads the model with a number of instances. After an error nothing
// remains.
func (c *check) open(count int32) (_ *session, err error) {
	s := &session{journal: &journal{}, backend: c.written.Backend, limit: c.options.Limit}
	b, closeBackend, err := c.way.Open(s.backend, zerolog.New(s.journal).With().Logger())
	if err != nil {
		return nil, err
	}
	s.close = closeBackend
	ctx, cancel := context.WithTimeoutCause(c.ctx, s.limit, fmt.Errorf("it has not ended within %s", s.limit))
	defer cancel()
	if err := s.load(ctx, c, b, count); err != nil {
		if s.model != nil {
			err = errors.Join(err, s.model.Close(ctx))
		}
		closeBackend()
		for _, fault := range s.journal.take(s.backend) {
			c.violated(ruleOf(fault), "loading", fault)
		}
		return nil, err
	}
	c.config = s.config // requests and answers are as it says
	return s, nil
}

// load loads a version as a server does.
func (s *session) load(ctx context.Context, c *check, b backend.Backend, count int32) (err error) {
	written := proto.Clone(c.written).(*kserve.ModelConfig)
	kind := kserve.ModelInstanceGroup_KIND_CPU
	if written.InstanceGroup[0].Kind == kserve.ModelInstanceGroup_KIND_MODEL {
		kind = kserve.ModelInstanceGroup_KIND_MODEL
	}
	written.InstanceGroup = []*kserve.ModelInstanceGroup{{Name: written.Name + "_0", Count: count, Kind: kind}}
	host := c.model.Host
	if host == nil {
		host = alone{}
	}
	s.model, err = b.Open(backend.Env{Name: written.Name, Version: c.version(), Directory: c.model.Directory, Config: written, Host: host})
	if err != nil {
		return fmt.Errorf("open the model: %w", err)
	}
	answer, err := s.model.AutoComplete(ctx, config.JSON(written))
	if err != nil {
		return fmt.Errorf("NewModel: %w", err)
	}
	if s.config, err = (config.Rules{}).Complete(written, answer); err != nil {
		return fmt.Errorf("the config as NewModel has completed it: %w", err)
	}
	if err := s.model.Start(ctx, s.config, config.JSON(s.config), &s.lives); err != nil {
		return fmt.Errorf("start the instances: %w", err)
	}
	s.instances = s.model.Instances()
	return nil
}

// end unloads the model and ends the backend, each within the limit.
func (s *session) end(c *check) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, s.limit, fmt.Errorf("it has not ended within %s", s.limit))
	defer cancel()
	s.lives.ending.Store(true)
	if err := s.model.Close(ctx); err != nil {
		c.violated(ruleUnload, "unloading", err.Error())
	}
	late := time.NewTimer(s.limit) // of its own: the model may have taken all of ctx
	defer late.Stop()
	closed := make(chan struct{})
	panics.Go(zerolog.Nop(), panics.Models, func() {
		defer close(closed)
		s.close()
	}, nil)
	select {
	case <-closed:
	case <-late.C:
		c.violated(ruleUnload, "ending the backend", fmt.Sprintf("Backend.Close has not returned within %s", s.limit))
	}
	c.faults(s, "unloading")
}

// lives records lost instances. A loss before the end of the session is the backend's fault.
type lives struct {
	ending atomic.Bool
	lost   atomic.Int64
}

// Available implements backend.Events.
func (*lives) Available(backend.Instance) {}

// Lost implements backend.Events.
func (l *lives) Lost(backend.Instance, bool) {
	if !l.ending.Load() {
		l.lost.Add(1)
	}
}
