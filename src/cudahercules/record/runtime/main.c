/* The launcher's executable: everything is in the stand-in runtime, which it has as its libcudart. */
int hercules_record(int argc, char **argv);

int main(int argc, char **argv) { return hercules_record(argc, argv); }
