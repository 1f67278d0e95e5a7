package repository

// TargetPaths and All are exported for the tests in package repository_test.

var TargetPaths = targetPaths

func (r *Roots) All() []*rootDir { return r.all() }
