package mirror

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/objectstore"
)

// take makes a directory with the file of one object. The caller is its user. Nothing is left after
// an error.
func (f *fetcher) take(ctx context.Context, key string, o objectstore.Object) (_ *copies.Copy, path string, _ error) {
	began := time.Now()
	c, err := f.folder()
	if err != nil {
		return nil, "", err
	}
	complete := false
	defer func() {
		if !complete {
			c.Drop()
		}
	}()
	space, err := f.claim(c.Path(), "execution environment "+f.config.Location.Join(key), []objectstore.Object{o})
	if err != nil {
		return nil, "", err
	}
	defer space.giveBack()
	path = filepath.Join(c.Path(), key)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, "", f.unwritable(c.Path(), err)
	}
	err = f.fetch(ctx, file, o, space)
	if closed := file.Close(); err == nil && closed != nil {
		err = f.unwritable(c.Path(), closed)
	}
	if err != nil {
		return nil, "", err
	}
	f.config.Log.Info().Msgf("fetched execution environment %s: %d bytes in %s", f.config.Location.Join(key), o.Size, time.Since(began).Round(time.Millisecond))
	complete = true
	return c, path, nil
}
