// Package stats has the measures and views of OpenCensus clients, aggregates what they record, and
// encodes the views as OTLP metrics, or gathers them for Prometheus.
//
// A State is what all connections share: a view has the data of every process that registered it or
// records its measure. It is changed by the messages of the clients, in an Update, and read by
// Encode, Gather, Counts and Status.
//
//	aggregation   OTLP                              Prometheus
//	Count         Sum, monotonic, ints, unit 1      counter
//	Sum           Sum, monotonic, ints or doubles   counter
//	Distribution  Histogram                         histogram
//	LastValue     Gauge                             gauge
//
// All are cumulative from the time that the view was registered. A bucket includes its upper bound,
// as OTLP and Prometheus have it; OpenCensus includes the lower one. A Histogram has no sum in OTLP
// from its first negative value on, as OTLP wants it. Times never decrease, even if the clock is set
// back: a series does not begin before the end of another one with its name.
//
// # Definitions
//
// Clients repeat their measures and views in every request, which changes nothing: a view keeps its
// series for as long as the measure, the aggregation, the set of tag keys and the boundaries are
// the same. Boundaries are compared sorted, without duplicates, and without those that are not
// finite. Another definition of a name is a conflict, and is not taken, unless nobody has
// registered the present one for 5 minutes: this is how an application looks whose code was
// changed. A view that is unregistered or replaced is encoded once more, as of that time.
//
// # Series
//
// A series is what a view has for one set of values of its tags. A tag that a record does not have
// is left out, which is not the same as a tag with an empty value; except for Prometheus, so that
// the second of two such series is left out there. Beyond the limit, measurements go into one
// series with the attribute otel.metric.overflow.
//
// # Limits
//
// Whatever clients send, memory stays bounded. One budget (Options.MaxMemory) covers measures,
// views, series and exemplars, and each of them takes from it what it needs, or what it takes in a
// request if that is more: so one export takes about as much again at most. A view takes in advance
// what its overflow series needs: a view that is registered always counts, whatever else there is.
//
//	what                                  limit               beyond it
//	all                                   Options.MaxMemory   not taken; series: overflow
//	measures, views, of a user            Options             not taken
//	series of a view                      Options.MaxSeries   overflow
//	boundaries of a view                  Options             view not taken
//	tag keys of a view                    32                  view not taken
//	views of a measure, of a user         64                  view not taken
//	names: view, measure, tag key         255 bytes           not taken; a tag: ignored
//	values of tags                        255 bytes           cut
//	descriptions, units, attachments      1,024 bytes         cut
//	tags, attachments of a record         32 each             the others are ignored
//	measurements of a record              256                 the others are skipped
//	updates of views by a record          512                 the others are skipped
//	exemplar                              2 KiB               attributes are left out
//	all of a Gather                       Options.MaxMemory   views are left out
//	conflicts for a log                   1 a minute          not returned
//
// A Gather allocates as much as the budget has at most, and leaves out views of a user that need
// more than is left free after them, like the budget. Conflicts are limited by user, and to 60 a
// minute in all, which Update returns for the caller to log.
//
// Everything that is lost is counted: see Loss. Text is made valid UTF-8 before it is compared, so
// that what looks the same is the same.
//
// # Users
//
// What a user of the host creates is charged to that user, who may have no more of the budget than
// is left free after it: alone, the half of it. So one user cannot keep others from registering
// views and having series. But names belong to everybody, as the protocol wants it: a user can
// record measures and unregister views of another, fill the series of a shared view, take a name
// before another does (in a Gather also one that is the same if translated), decide on the type of a
// measure by recording it first, and replace a view that nobody has registered for 5 minutes. The
// reporting period is that of all, and anybody sets it. And many users together can leave little to
// the next one.
package stats
