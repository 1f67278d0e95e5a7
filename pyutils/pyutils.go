// Package pyutils carries the Python modules that models import:
// triton_python_backend_utils and c_python_backend_utils.
package pyutils

import "embed"

// Files holds both modules, at its root.
//
//go:embed triton_python_backend_utils.py c_python_backend_utils/*.py
var Files embed.FS
