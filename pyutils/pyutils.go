// Package pyutils carries the Python modules that models import: triton_python_backend_utils,
// c_python_backend_utils and nereid.
package pyutils

import "embed"

// Files holds these modules, at its root.
//
//go:embed triton_python_backend_utils.py c_python_backend_utils/*.py nereid/*.py
var Files embed.FS
