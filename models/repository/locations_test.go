package repository_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/objectstore"
)

// oneModel is a store that contains one model's config.
type oneModel struct{}

const oneConfig = "backend: \"python\""

func (oneModel) List(_ context.Context, _ string, each func(objectstore.Object) error) error {
	return each(objectstore.Object{Key: "m/config.pbtxt", Size: int64(len(oneConfig)), Version: "1"})
}

func (oneModel) Open(context.Context, objectstore.Object) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(oneConfig)), nil
}

func (oneModel) Close() error { return nil }

// TestOneLocationInAStoreCountsOnce checks that URLs of the same location open one store, so that
// its models are not in two repositories.
func TestOneLocationInAStoreCountsOnce(t *testing.T) {
	stop, opened := make(chan struct{}), 0
	defer close(stop)
	t.Setenv("TMPDIR", t.TempDir())
	r, err := repository.Open([]string{"as://account/c/m?sig=a", "as://account/c/m/", "as://account.blob.core.windows.net/c/m?sig=b"}, repository.Options{Stop: stop,
		Objects: func(context.Context, objectstore.Location) (objectstore.Bucket, error) {
			opened++
			return oneModel{}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if ids, rejected, err := r.Scan(); opened != 1 || len(ids) != 1 || len(rejected) != 0 || err != nil {
		t.Errorf("got %v, rejected %v, %v of %d places", ids, rejected, err, opened)
	}
}
