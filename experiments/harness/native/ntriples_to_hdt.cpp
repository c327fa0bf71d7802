// N-Triples to HDT, for the reference server: the library that the npm package hdt ships has no
// parser of its own, and the one that it can use (serd) need not be installed. The input is what
// the experiments generate: one triple per line, single spaces, no escapes.
#include <fstream>
#include <iostream>
#include <string>

#include <HDT.hpp>
#include <HDTManager.hpp>
#include <HDTSpecification.hpp>
#include <RDFParser.hpp>

namespace {

std::string bare(const std::string &term) {
    return term[0] == '<' ? term.substr(1, term.size() - 2) : term;
}

class Lines : public hdt::RDFParserCallback {
  public:
    void doParse(const char *file, const char *, hdt::RDFNotation, bool,
                 hdt::RDFCallback *callback) override {
        std::ifstream input(file);
        std::string line;
        unsigned long long position = 0;
        while (std::getline(input, line)) {
            position += line.size() + 1;
            const size_t first = line.find(' '), second = line.find(' ', first + 1);
            const size_t end = line.rfind(" .");
            if (second == std::string::npos || end <= second || line.find('\\') != line.npos)
                throw hdt::ParseException("not a line of this experiment: " + line);
            callback->processTriple(
                hdt::TripleString(bare(line.substr(0, first)),
                                  bare(line.substr(first + 1, second - first - 1)),
                                  bare(line.substr(second + 1, end - second - 1))),
                position);
        }
        if (input.bad()) throw hdt::ParseException("cannot be read");
    }
};

}  // namespace

hdt::RDFParserCallback *hdt::RDFParserCallback::getParserCallback(RDFNotation) {
    return new Lines();
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    try {
        hdt::HDTSpecification specification;
        hdt::HDT *data = hdt::HDTManager::generateHDT(
            arguments[1], "http://example.org/", hdt::NTRIPLES, specification, nullptr);
        data->saveToHDT(arguments[2]);
        delete data;
        delete hdt::HDTManager::mapIndexedHDT(arguments[2]);
    } catch (std::exception &problem) {
        std::cerr << problem.what() << std::endl;
        return 1;
    }
    return 0;
}
