package recording

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

// FakeCore has one model, whose responses infer sends.
type FakeCore struct {
	server.Core
	info  models.Info
	infer func(req *infer.Request, send infer.Sender) error
}

func (c *FakeCore) Target(string, int64) (models.Target, error) { return c, nil }

func (c *FakeCore) Info() *models.Info { return &c.info }

func (c *FakeCore) Infer(_ context.Context, req *infer.Request, send infer.Sender) error {
	return c.infer(req, send)
}

func UintTensor(name string, data ...byte) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data}
}

func RecordedIn(ctx context.Context, t *testing.T, config Config, req *infer.Request, answer func(req *infer.Request, send infer.Sender) error) []*Record {
	t.Helper()
	config.Directory, config.Log = filepath.Join(t.TempDir(), "records"), zerolog.Nop()
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	core := &FakeCore{info: models.Info{Name: "m", Version: 2}, infer: answer}
	target, err := r.Around(core).Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	_ = target.Infer(ctx, req, func(r *infer.Response) { r.Release() })
	r.Close()
	if n := r.waiting.Load(); n != 0 {
		t.Errorf("%d bytes are charged in the end", n)
	}
	return readAll(t, config.Directory)
}

func readAll(t *testing.T, directory string) (list []*Record) {
	t.Helper()
	files, err := Files(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		r, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}
