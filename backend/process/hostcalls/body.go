package hostcalls

import (
	"cmp"
	"github.com/nereid-serving/nereid/infer"
	"github.com/vmihailenco/msgpack/v5"
)

// callBody is the body of CALL: the operation, and the fields of all operations.
type callBody struct {
	Operation string `msgpack:"operation"`

	Model      string    `msgpack:"model"`
	Config     string    `msgpack:"config"`
	Files      callFiles `msgpack:"files"`
	Dependents bool      `msgpack:"dependents"`
	Version    string    `msgpack:"version"`
	Bytes      int64     `msgpack:"bytes"`
	Paths      []string  `msgpack:"paths"`

	Index       int   `msgpack:"index"`
	Start       int64 `msgpack:"start"`
	OutputStart int64 `msgpack:"output_start"`
	End         int64 `msgpack:"end"`
	Outcome     uint8 `msgpack:"outcome"`

	Trace string `msgpack:"trace"`
	At    int64  `msgpack:"at"`

	Family      uint64      `msgpack:"family"`
	Name        string      `msgpack:"name"`
	Description string      `msgpack:"description"`
	Kind        int         `msgpack:"kind"`
	Metric      uint64      `msgpack:"metric"`
	Labels      [][2]string `msgpack:"labels"`
	Buckets     []float64   `msgpack:"buckets"`
}

// callFiles are the files of a model by name. They are skipped if there are more than one call may
// have.
type callFiles struct {
	content map[string][]byte
	tooMany bool
	most    int // set before the body is decoded; 0 is defaultFiles
}

// DecodeMsgpack implements msgpack.CustomDecoder. It counts the files before it allocates anything
// for them.
func (f *callFiles) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := d.DecodeMapLen()
	if err != nil || n <= 0 {
		return err
	}
	if f.tooMany = n > cmp.Or(f.most, defaultFiles); f.tooMany {
		for range 2 * n {
			if err := d.Skip(); err != nil {
				return err
			}
		}
		return nil
	}
	f.content = make(map[string][]byte, n) // bound: most
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		if f.content[name], err = d.DecodeBytes(); err != nil { // bound: the frame
			return err
		}
	}
	return nil
}

// resultBody is the body of RESULT.
type resultBody struct {
	Error string  `msgpack:"error"`
	Code  int     `msgpack:"code,omitempty"` // of the error
	Ready bool    `msgpack:"ready"`
	Value float64 `msgpack:"value"`

	Decoupled bool `msgpack:"decoupled,omitempty"`
	Asks      bool `msgpack:"asks,omitempty"`
}

// parseVersion parses a model's version as Triton does; "" is the latest.
func parseVersion(text string) (int64, error) {
	if text == "" {
		return infer.LatestVersion, nil
	}
	version, err := infer.Stol(text)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArg,
			"failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", text)
	}
	if version < 0 {
		return 0, infer.Errorf(infer.InvalidArg, "failed to get model version from specified version string '%s', version should be an integral value > 0", text)
	}
	return version, nil
}
