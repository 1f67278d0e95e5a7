package process

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// executing returns the batch that the stub executes, and when the one before it was
// answered; an error if that is not the one with this number.
func (f *inFlight) executing(number uint64) (first batchInFlight, freed int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked := f.asked; asked.certain && number > asked.number {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where batch %d, which was withdrawn, is to be skipped first", number, asked.number)
	}
	if f.count == 0 || number != f.current[0].number || number > f.encoded.Load() {
		return first, 0, ipc.Broken("handle", "EXECUTED of batch %d, where %d are inside, the first of them %d", number, f.count, f.current[0].number)
	}
	return f.current[0], f.freed, nil
}

// conclude takes out the first batch, which the caller answers; false if the end of
// the life does. It completes responses and report, and returns the streams that end
// with the batch and whose senders may wait.
func (f *inFlight) conclude(first *batchInFlight, responses []*infer.Response, rescheduled map[uint32]bool, report *backend.Report, arrived int64) (credits []*stream, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil, false
	}
	var ended []*stream
	group := f.current[0].lent
	var left *lending // by requests that stay open
	for i, task := range first.batch.Tasks {
		s := first.stream(i)
		switch {
		case s != nil && s.ended:
		case responses[i] != nil:
			if s != nil {
				responses[i] = s.whole(responses[i])
			}
		case report.Err != nil:
			responses[i] = infer.ErrorResponse(report.Err)
			if s != nil && f.decoupled {
				credits = append(credits, s) // its send may be waiting
			}
		case rescheduled[uint32(i)]:
			report.Rescheduled = append(report.Rescheduled, task)
		default:
			if s == nil {
				s = &stream{of: f, task: task, handle: first.handleOf(i)}
			}
			if group != nil {
				if left == nil {
					left = &lending{group: group}
				}
				s.lent = left
				left.open++
			}
			f.open.add(s)
			continue
		}
		if s != nil {
			ended = append(ended, s)
		}
	}
	f.concludeLocked(arrived)
	if group != nil && left == nil {
		f.session.answered(group)
	}
	for _, s := range ended { // not before that: up to here, the end of the life may have to answer them
		s.ended = true
		s.close()
	}
	if f.asked.number == first.number { // too late
		f.asked = withdrawal{}
	}
	return credits, true
}

// skipping returns what was withdrawn and the batch that is first, and whether the stub
// may skip the batch with this number now.
func (f *inFlight) skipping(number uint64) (asked withdrawal, first batchInFlight, fits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, first = f.asked, f.current[0]
	fits = number != 0 && number == asked.number
	if asked.certain { // what was handed over before it must have been answered
		fits = fits && (f.count == 0 || first.number > number)
	} else {
		fits = fits && f.count > 0 && first.number == number
	}
	return asked, first, fits
}

// concludeSkipped takes a skipped batch, which the caller gives back, unless that
// has been done.
func (f *inFlight) concludeSkipped(asked withdrawal, arrived int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = withdrawal{}
	if asked.certain || f.count == 0 { // or the life has been ended meanwhile
		return false
	}
	f.concludeLocked(arrived)
	return true
}
