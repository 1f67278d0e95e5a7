// Package stub carries the Python program that runs one instance of a model,
// and the template that forks such programs. They are written for the
// interpreter of the model's author: Python 3.8 or later with numpy.
package stub

import "embed"

// Files holds pb_stub, which is all of the stub, and the two programs that
// start it. They run from a directory that holds pyutils.Files as well. The
// stub's compiled part is there if `make build` had a C compiler.
//
//go:embed nereid_devices/*.py nereid_template/*.py pb_stub/*.py pb_stub/_accelerator* triton_python_backend_stub/*.py
var Files embed.FS
