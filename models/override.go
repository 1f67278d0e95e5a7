package models

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// override is what a load request brings in place of what the repository has.
type override struct {
	config *kserve.ModelConfig // nil: the repository's
	upload *upload             // nil: the repository's
}

// override reads the parameters of a load request. Whoever calls it drops the
// upload. The error is for the log.
func (r *Registry) override(name, config string, files map[string][]byte) (o override, err error) {
	if config == "" {
		if len(files) > 0 {
			return o, infer.Errorf(infer.InvalidArg, "Load parameter 'config' must be specified for model file override")
		}
		return o, nil
	}
	if o.config, err = ParseConfigJSON([]byte(config)); err != nil {
		return override{}, fmt.Errorf("Invalid config override: %w", err) //nolint:revive // Triton's text
	}
	if len(files) == 0 {
		return o, nil
	}
	if !local(name) {
		return override{}, infer.Errorf(infer.InvalidArg, "%q cannot be the name of a model", name)
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(o.config)
	if err != nil {
		return override{}, fmt.Errorf("write the config of the request: %w", err)
	}
	if o.upload, err = r.uploads.write(files, text); err != nil {
		return override{}, err
	}
	return o, nil
}

// open opens the directory as that of the model name. Texts show that name alone.
func (u *upload) open(name string) (*folder, error) {
	root, err := os.OpenRoot(u.path)
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "failed to open directory %s: %s", name, strerror(err))
	}
	return &folder{root: root, inner: ".", path: u.path, shown: name, owned: true}, nil
}

// readUpload reads a model of which all has come with the request.
func (r *Repository) readUpload(name string, o override) (*Description, error) {
	f, err := o.upload.open(name)
	if err != nil {
		return nil, err
	}
	defer f.close()
	d, err := r.describe(f, name, o.config)
	if err != nil {
		return nil, err
	}
	d.upload = o.upload
	return d, nil
}

// readConfigured reads a model of the repository whose configuration has come
// with the request, and the newest time in its directory.
func (r *Repository) readConfigured(name string, o override) (*Description, *time.Time, error) {
	f, err := r.open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.close()
	newest := f.newest()
	d, err := r.describe(f, name, o.config)
	return d, &newest, err
}

// changed reports whether anything in a model's directory is newer than then.
func (r *Repository) changed(name string, then time.Time) bool {
	f, err := r.open(name)
	if err != nil {
		return true
	}
	defer f.close()
	return f.newest().After(then)
}

// newest is when the folder or anything below it was last modified; zero if that
// cannot be told. Links are followed to directories only at the top.
func (f *folder) newest() time.Time {
	latest := time.Time{}
	see := func(info fs.FileInfo) {
		latest = maxTime(latest, info.ModTime())
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			latest = maxTime(latest, time.Unix(s.Ctim.Unix()))
		}
	}
	own, err := os.Stat(f.path)
	if err != nil {
		return time.Time{}
	}
	see(own)
	entries, err := f.list(".")
	if err != nil {
		return time.Time{}
	}
	for _, e := range entries {
		top := filepath.Join(f.path, e.name)
		if e.dir { // a trailing slash follows a link
			top += string(filepath.Separator)
		}
		err := filepath.WalkDir(top, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			see(info)
			return nil
		})
		if err != nil {
			return time.Time{}
		}
	}
	return latest
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
