package nereid

// Names for the tests in package nereid_test.

func (o *Options) NativeSettings(backend string) (values map[string]string, message string) {
	return o.nativeSettings(backend)
}

func (o *Options) OwnSettings(backend string) map[string]string { return o.ownSettings(backend) }
